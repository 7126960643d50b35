/* Uses SQLite when a program ends: in a function of atexit, in a destructor, at the end of a thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int sqlite3_open(const char *name, void **database);
int sqlite3_exec(void *database, const char *sql, void *each, void *its, char **error);
int sqlite3_close(void *database);

static void record(const char *where)
{
	void *database;
	int opened = sqlite3_open("last.db", &database);
	int done = sqlite3_exec(database, "CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES (1)", 0, 0, 0);
	printf("%s: %d %d %d\n", where, opened, done, sqlite3_close(database));
	fflush(stdout);
}

static void at_exit(void) { record("at exit"); }
static void at_end(void *its) { record("end of a thread"); }
__attribute__((destructor)) static void destructor(void) { record("destructor"); }

static pthread_key_t key;
static void *thread(void *its)
{
	record("thread");
	pthread_setspecific(key, &key);
	return 0;
}

int main(void)
{
	pthread_t its;
	pthread_key_create(&key, at_end);
	atexit(at_exit);
	record("main");
	pthread_create(&its, 0, thread, 0);
	pthread_join(its, 0);
	return 0;
}
