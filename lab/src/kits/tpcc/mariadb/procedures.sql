-- The transactions of the load, one procedure each: it begins, does all, and commits. Whatever goes
-- wrong in it, nothing of it is left. They are made in the database of the kit. MariaDB has no
-- UPDATE … RETURNING: a row that is changed is read with FOR UPDATE first.

-- The number of a customer: of several of a name the one in the middle, rounded up.
CREATE OR REPLACE PROCEDURE customer_number(p_w INT, p_d INT, p_number INT, p_name VARCHAR(500),
    OUT p_found INT)
BEGIN
    DECLARE v_skip INT;
    IF p_number IS NOT NULL THEN
        SET p_found = p_number;
    ELSE
        SELECT (count(*) + 1) DIV 2 - 1 INTO v_skip FROM customer
            WHERE c_w_id = p_w AND c_d_id = p_d AND c_last = p_name;
        IF v_skip < 0 THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no customer of that name';
        END IF;
        SELECT c_id INTO p_found FROM customer
            WHERE c_w_id = p_w AND c_d_id = p_d AND c_last = p_name
            ORDER BY c_first, c_id LIMIT 1 OFFSET v_skip;
    END IF;
END;

CREATE OR REPLACE PROCEDURE do_new_order(p_w INT, p_d INT, p_c INT, p_at BIGINT, p_count INT,
    p_items VARCHAR(500), p_supplies VARCHAR(500), p_quantities VARCHAR(500))
BEGIN
    DECLARE v_w_tax, v_d_tax, v_order, v_discount, v_item, v_supply, v_quantity INT;
    DECLARE v_local INT DEFAULT 1;
    DECLARE v_at INT DEFAULT 1;
    DECLARE v_price BIGINT;
    DECLARE v_sum BIGINT DEFAULT 0;
    DECLARE v_last, v_credit, v_name, v_item_data, v_stock_data, v_info VARCHAR(500);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE EXIT HANDLER FOR NOT FOUND BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'New-Order found no row that has to be there';
    END;
    START TRANSACTION;
    WHILE v_at <= p_count DO
        IF CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(p_supplies, ',', v_at), ',', -1) AS INT) <> p_w THEN
            SET v_local = 0;
        END IF;
        SET v_at = v_at + 1;
    END WHILE;
    SELECT w_tax INTO v_w_tax FROM warehouse WHERE w_id = p_w;
    SELECT d_tax, d_next_o_id INTO v_d_tax, v_order FROM district
        WHERE d_w_id = p_w AND d_id = p_d FOR UPDATE;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w AND d_id = p_d;
    SELECT c_discount, c_last, c_credit INTO v_discount, v_last, v_credit FROM customer
        WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = p_c;
    INSERT INTO orders VALUES (p_w, p_d, v_order, p_c, p_at, NULL, p_count, v_local);
    INSERT INTO new_order VALUES (p_w, p_d, v_order);
    SET v_at = 1;
    WHILE v_at <= p_count DO
        SET v_item = SUBSTRING_INDEX(SUBSTRING_INDEX(p_items, ',', v_at), ',', -1);
        SET v_supply = SUBSTRING_INDEX(SUBSTRING_INDEX(p_supplies, ',', v_at), ',', -1);
        SET v_quantity = SUBSTRING_INDEX(SUBSTRING_INDEX(p_quantities, ',', v_at), ',', -1);
        BEGIN
            DECLARE EXIT HANDLER FOR NOT FOUND
                SIGNAL SQLSTATE 'HL001' SET MESSAGE_TEXT = 'item number is not valid';
            SELECT i_price, i_name, i_data INTO v_price, v_name, v_item_data FROM item
                WHERE i_id = v_item;
        END;
        SELECT CASE p_d
                WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                ELSE s_dist_10 END, s_data
            INTO v_info, v_stock_data
            FROM stock WHERE s_w_id = v_supply AND s_i_id = v_item FOR UPDATE;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= v_quantity + 10 THEN s_quantity - v_quantity
                ELSE s_quantity - v_quantity + 91 END,
            s_ytd = s_ytd + v_quantity,
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN v_supply <> p_w THEN 1 ELSE 0 END
            WHERE s_w_id = v_supply AND s_i_id = v_item;
        INSERT INTO order_line VALUES (p_w, p_d, v_order, v_at, v_item, v_supply, NULL, v_quantity,
            v_quantity * v_price, v_info);
        SET v_sum = v_sum + v_quantity * v_price;
        SET v_at = v_at + 1;
    END WHILE;
    COMMIT;
    SELECT v_sum * (10000 - v_discount) * (10000 + v_w_tax + v_d_tax) DIV 100000000 + v_order;
END;

CREATE OR REPLACE PROCEDURE do_payment(p_w INT, p_d INT, p_c_w INT, p_c_d INT, p_number INT,
    p_name VARCHAR(500), p_amount BIGINT, p_at BIGINT)
BEGIN
    DECLARE v_c INT;
    DECLARE v_balance BIGINT;
    DECLARE v_credit, v_w_name, v_d_name VARCHAR(500);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE EXIT HANDLER FOR NOT FOUND BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Payment found no row that has to be there';
    END;
    START TRANSACTION;
    CALL customer_number(p_c_w, p_c_d, p_number, p_name, v_c);
    SELECT c_balance, c_credit INTO v_balance, v_credit FROM customer
        WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c FOR UPDATE;
    IF v_credit = 'BC' THEN
        UPDATE customer SET c_balance = c_balance - p_amount,
            c_ytd_payment = c_ytd_payment + p_amount, c_payment_cnt = c_payment_cnt + 1,
            c_data = LEFT(CONCAT(v_c, ' ', p_c_d, ' ', p_c_w, ' ', p_d, ' ', p_w, ' ', p_amount,
                ' ', c_data), 500)
            WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c;
    ELSE
        UPDATE customer SET c_balance = c_balance - p_amount,
            c_ytd_payment = c_ytd_payment + p_amount, c_payment_cnt = c_payment_cnt + 1
            WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c;
    END IF;
    SELECT d_name INTO v_d_name FROM district WHERE d_w_id = p_w AND d_id = p_d FOR UPDATE;
    UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w AND d_id = p_d;
    SELECT w_name INTO v_w_name FROM warehouse WHERE w_id = p_w FOR UPDATE;
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w;
    INSERT INTO history VALUES (v_c, p_c_d, p_c_w, p_d, p_w, p_at, p_amount,
        CONCAT(v_w_name, '    ', v_d_name));
    COMMIT;
    SELECT v_balance - p_amount + v_c;
END;

CREATE OR REPLACE PROCEDURE do_order_status(p_w INT, p_d INT, p_number INT, p_name VARCHAR(500))
BEGIN
    DECLARE v_c, v_order INT;
    DECLARE v_balance, v_sum BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE EXIT HANDLER FOR NOT FOUND BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Order-Status found no row that has to be there';
    END;
    START TRANSACTION READ ONLY;
    CALL customer_number(p_w, p_d, p_number, p_name, v_c);
    SELECT c_balance INTO v_balance FROM customer
        WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = v_c;
    SELECT o_id INTO v_order FROM orders
        WHERE o_w_id = p_w AND o_d_id = p_d AND o_c_id = v_c ORDER BY o_id DESC LIMIT 1;
    SELECT sum(ol_i_id + ol_supply_w_id + ol_quantity + ol_amount) INTO v_sum
        FROM order_line WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id = v_order;
    COMMIT;
    SELECT v_balance + v_order + v_sum;
END;

CREATE OR REPLACE PROCEDURE do_delivery(p_w INT, p_carrier INT, p_at BIGINT)
BEGIN
    DECLARE v_d INT DEFAULT 1;
    DECLARE v_order, v_c INT;
    DECLARE v_sum BIGINT;
    DECLARE v_delivered BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE EXIT HANDLER FOR NOT FOUND BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Delivery found no row that has to be there';
    END;
    START TRANSACTION;
    WHILE v_d <= 10 DO
        -- A district without open orders is passed over.
        SET v_order = (SELECT no_o_id FROM new_order
            WHERE no_w_id = p_w AND no_d_id = v_d ORDER BY no_o_id LIMIT 1 FOR UPDATE);
        IF v_order IS NOT NULL THEN
            DELETE FROM new_order WHERE no_w_id = p_w AND no_d_id = v_d AND no_o_id = v_order;
            SELECT o_c_id INTO v_c FROM orders
                WHERE o_w_id = p_w AND o_d_id = v_d AND o_id = v_order FOR UPDATE;
            UPDATE orders SET o_carrier_id = p_carrier
                WHERE o_w_id = p_w AND o_d_id = v_d AND o_id = v_order;
            UPDATE order_line SET ol_delivery_d = p_at
                WHERE ol_w_id = p_w AND ol_d_id = v_d AND ol_o_id = v_order;
            SELECT sum(ol_amount) INTO v_sum FROM order_line
                WHERE ol_w_id = p_w AND ol_d_id = v_d AND ol_o_id = v_order;
            UPDATE customer SET c_balance = c_balance + v_sum, c_delivery_cnt = c_delivery_cnt + 1
                WHERE c_w_id = p_w AND c_d_id = v_d AND c_id = v_c;
            SET v_delivered = v_delivered + v_sum + v_order;
        END IF;
        SET v_d = v_d + 1;
    END WHILE;
    COMMIT;
    SELECT v_delivered;
END;

CREATE OR REPLACE PROCEDURE do_stock_level(p_w INT, p_d INT, p_threshold INT)
BEGIN
    DECLARE v_next INT;
    DECLARE v_short BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE EXIT HANDLER FOR NOT FOUND BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Stock-Level found no row that has to be there';
    END;
    START TRANSACTION READ ONLY;
    SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
    -- STRAIGHT_JOIN: in this order of the two tables.
    SELECT STRAIGHT_JOIN count(DISTINCT s_i_id) INTO v_short FROM order_line, stock
        WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
        AND s_w_id = p_w AND s_i_id = ol_i_id AND s_quantity < p_threshold;
    COMMIT;
    SELECT v_short;
END;
