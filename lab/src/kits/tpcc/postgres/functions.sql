-- The transactions of the load, one function each. They are made in the schema of the kit.

-- The number of a customer: of several of a name the one in the middle, rounded up.
CREATE FUNCTION customer_number(p_w int, p_d int, p_number int, p_name text)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_found int[];
BEGIN
    IF p_number IS NOT NULL THEN
        RETURN p_number;
    END IF;
    v_found := ARRAY(SELECT c_id FROM customer
        WHERE c_w_id = p_w AND c_d_id = p_d AND c_last = p_name
        ORDER BY c_first COLLATE "C", c_id);
    IF cardinality(v_found) = 0 THEN
        RAISE EXCEPTION 'no customer of that name' USING ERRCODE = 'no_data_found';
    END IF;
    RETURN v_found[(cardinality(v_found) + 1) / 2];
END $$;

CREATE FUNCTION do_new_order(p_w int, p_d int, p_c int, p_at bigint,
    p_items int[], p_supplies int[], p_quantities int[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_w_tax int;
    v_d_tax int;
    v_order int;
    v_discount int;
    v_last text;
    v_credit text;
    v_local int := 1;
    v_price bigint;
    v_name text;
    v_item_data text;
    v_stock_data text;
    v_info text;
    v_sum bigint := 0;
BEGIN
    FOR i IN 1 .. cardinality(p_items) LOOP
        IF p_supplies[i] <> p_w THEN
            v_local := 0;
        END IF;
    END LOOP;
    SELECT w_tax INTO STRICT v_w_tax FROM warehouse WHERE w_id = p_w;
    UPDATE district SET d_next_o_id = d_next_o_id + 1
        WHERE d_w_id = p_w AND d_id = p_d
        RETURNING d_tax, d_next_o_id - 1 INTO STRICT v_d_tax, v_order;
    SELECT c_discount, c_last, c_credit INTO STRICT v_discount, v_last, v_credit
        FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = p_c;
    INSERT INTO orders VALUES (p_w, p_d, v_order, p_c, p_at, NULL, cardinality(p_items), v_local);
    INSERT INTO new_order VALUES (p_w, p_d, v_order);
    FOR i IN 1 .. cardinality(p_items) LOOP
        SELECT i_price, i_name, i_data INTO v_price, v_name, v_item_data
            FROM item WHERE i_id = p_items[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'item number is not valid' USING ERRCODE = 'HL001';
        END IF;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= p_quantities[i] + 10
                THEN s_quantity - p_quantities[i]
                ELSE s_quantity - p_quantities[i] + 91 END,
            s_ytd = s_ytd + p_quantities[i],
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN p_supplies[i] <> p_w THEN 1 ELSE 0 END
            WHERE s_w_id = p_supplies[i] AND s_i_id = p_items[i]
            RETURNING CASE p_d
                WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                ELSE s_dist_10 END, s_data
            INTO STRICT v_info, v_stock_data;
        INSERT INTO order_line VALUES (p_w, p_d, v_order, i, p_items[i], p_supplies[i], NULL,
            p_quantities[i], p_quantities[i] * v_price, v_info);
        v_sum := v_sum + p_quantities[i] * v_price;
    END LOOP;
    RETURN v_sum * (10000 - v_discount) * (10000 + v_w_tax + v_d_tax) / 100000000 + v_order;
END $$;

CREATE FUNCTION do_payment(p_w int, p_d int, p_c_w int, p_c_d int, p_number int, p_name text,
    p_amount bigint, p_at bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_c int := customer_number(p_c_w, p_c_d, p_number, p_name);
    v_balance bigint;
    v_credit text;
    v_w_name text;
    v_d_name text;
BEGIN
    SELECT c_balance, c_credit INTO STRICT v_balance, v_credit FROM customer
        WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c;
    IF v_credit = 'BC' THEN
        UPDATE customer SET c_balance = c_balance - p_amount,
            c_ytd_payment = c_ytd_payment + p_amount, c_payment_cnt = c_payment_cnt + 1,
            c_data = left(v_c || ' ' || p_c_d || ' ' || p_c_w || ' ' || p_d || ' ' || p_w || ' '
                || p_amount || ' ' || c_data, 500)
            WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c;
    ELSE
        UPDATE customer SET c_balance = c_balance - p_amount,
            c_ytd_payment = c_ytd_payment + p_amount, c_payment_cnt = c_payment_cnt + 1
            WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c;
    END IF;
    UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w AND d_id = p_d
        RETURNING d_name INTO STRICT v_d_name;
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w
        RETURNING w_name INTO STRICT v_w_name;
    INSERT INTO history VALUES (v_c, p_c_d, p_c_w, p_d, p_w, p_at, p_amount,
        v_w_name || '    ' || v_d_name);
    RETURN v_balance - p_amount + v_c;
END $$;

CREATE FUNCTION do_order_status(p_w int, p_d int, p_number int, p_name text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_c int := customer_number(p_w, p_d, p_number, p_name);
    v_balance bigint;
    v_order int;
    v_sum bigint;
BEGIN
    SELECT c_balance INTO STRICT v_balance FROM customer
        WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = v_c;
    SELECT o_id INTO STRICT v_order FROM orders
        WHERE o_w_id = p_w AND o_d_id = p_d AND o_c_id = v_c ORDER BY o_id DESC LIMIT 1;
    SELECT sum(ol_i_id + ol_supply_w_id + ol_quantity + ol_amount) INTO STRICT v_sum
        FROM order_line WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id = v_order;
    RETURN v_balance + v_order + v_sum;
END $$;

CREATE FUNCTION do_delivery(p_w int, p_carrier int, p_at bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_order int;
    v_c int;
    v_sum bigint;
    v_delivered bigint := 0;
BEGIN
    FOR v_d IN 1 .. 10 LOOP
        SELECT no_o_id INTO v_order FROM new_order
            WHERE no_w_id = p_w AND no_d_id = v_d ORDER BY no_o_id LIMIT 1;
        -- A district without open orders is passed over.
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_order WHERE no_w_id = p_w AND no_d_id = v_d AND no_o_id = v_order;
        UPDATE orders SET o_carrier_id = p_carrier
            WHERE o_w_id = p_w AND o_d_id = v_d AND o_id = v_order
            RETURNING o_c_id INTO STRICT v_c;
        UPDATE order_line SET ol_delivery_d = p_at
            WHERE ol_w_id = p_w AND ol_d_id = v_d AND ol_o_id = v_order;
        SELECT sum(ol_amount) INTO STRICT v_sum FROM order_line
            WHERE ol_w_id = p_w AND ol_d_id = v_d AND ol_o_id = v_order;
        UPDATE customer SET c_balance = c_balance + v_sum, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = p_w AND c_d_id = v_d AND c_id = v_c;
        v_delivered := v_delivered + v_sum + v_order;
    END LOOP;
    RETURN v_delivered;
END $$;

CREATE FUNCTION do_stock_level(p_w int, p_d int, p_threshold int)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_next int;
    v_short bigint;
BEGIN
    SELECT d_next_o_id INTO STRICT v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
    SELECT count(DISTINCT s_i_id) INTO v_short FROM order_line, stock
        WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
        AND s_w_id = p_w AND s_i_id = ol_i_id AND s_quantity < p_threshold;
    RETURN v_short;
END $$;
