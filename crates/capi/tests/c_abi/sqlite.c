/* SQLite's page cache from C: what is wrong is said, and a SQLite that is here works on ours. */
#include "check.h"

#include <dlfcn.h>

typedef int (*open_function)(const char *, void **);
typedef int (*exec_function)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **);

static char answer[64];

static int keep(void *data, int columns, char **values, char **names) {
    (void)data, (void)names;
    if (columns == 1 && values[0] != NULL) {
        strncpy(answer, values[0], sizeof answer - 1);
    }
    return 0;
}

static hl_function function(void *library, const char *name) {
    hl_function found;
    void *address = dlsym(library, name);
    memcpy(&found, &address, sizeof found);
    return found;
}

static void in_use(void *library) {
    open_function open;
    exec_function exec;
    void *database = NULL, *address = dlsym(library, "sqlite3_open");
    memcpy(&open, &address, sizeof open);
    address = dlsym(library, "sqlite3_exec");
    memcpy(&exec, &address, sizeof exec);
    CHECK(open("", &database) == 0);
    CHECK(exec(database,
               "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT);"
               "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
               "INSERT INTO t SELECT i, printf('%0200d', i) FROM n;"
               "SELECT sum(id) FROM t;",
               keep, NULL, NULL) == 0);
    CHECK(strcmp(answer, "200010000") == 0);
}

int main(void) {
    hl_error error;
    hl_sqlite_options options = {.size = sizeof options, .target_bytes = 64 << 20, .ladder = "2M"};
    ENDS(HL_INVALID, hl_sqlite_install(NULL, &error));
    ENDS(HL_INVALID, hl_sqlite_install(&options, &error));
    ENDS(HL_INVALID, hl_sqlite_set_target(1 << 20, &error));
    CHECK(hl_sqlite_held() == 0);
    void *library = dlopen("libsqlite3.so.0", RTLD_NOW);
    if (library != NULL) {
        options.config = function(library, "sqlite3_config");
        options.vfs_find = function(library, "sqlite3_vfs_find");
        options.vfs_register = function(library, "sqlite3_vfs_register");
        options.target_bytes = 1;
        ENDS(HL_INVALID, hl_sqlite_install(&options, &error));
        options.target_bytes = (uint64_t)1 << 56;
        ENDS(HL_TOO_LARGE, hl_sqlite_install(&options, &error));
        CHECK(strstr(error.what, "of memory that this process can have") != NULL);
        options.target_bytes = 64 << 20;
        ENDS(HL_OK, hl_sqlite_install(&options, &error));
        in_use(library);
        CHECK(hl_sqlite_held() > 0);
        ENDS(HL_OK, hl_sqlite_set_target(32 << 20, &error));
        ENDS(HL_INVALID, hl_sqlite_set_target((uint64_t)1 << 40, &error));
        ENDS(HL_INVALID, hl_sqlite_install(&options, &error));
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
