/* Opens databases with the SQLite that it is bound to, and says what it got. */
#include <stdio.h>
int sqlite3_initialize(void);
int sqlite3_open(const char *name, void **database);
int sqlite3_open_v2(const char *name, void **database, int flags, const char *vfs);
int sqlite3_close(void *database);
int sqlite3_libversion_number(void);

/* The last call of a function is a jump: its return address is the caller's. */
__attribute__((noinline, visibility("default"))) int jump(const char *name, void **database)
{
	return sqlite3_open(name, database);
}

__attribute__((visibility("default"))) void use(void)
{
	void *one = 0, *two = 0;
	int first = sqlite3_open("x", &one);
	int second = sqlite3_open_v2("x", &two, 6, 0);
	printf("%d %d version %d opened %ld %ld closed %d %d\n", first, second, sqlite3_libversion_number(),
	       (long)one, (long)two, sqlite3_close(one), sqlite3_close(two));
}
