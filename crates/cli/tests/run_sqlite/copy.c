/* A copy of SQLite that only says which one it is: ID. */
#ifndef ID
#define ID 1
#endif
#ifdef OWN
const char mark[] = "SQLite format 3";
#endif
int sqlite3_initialize(void) { return 0; }
int sqlite3_libversion_number(void) { return ID; }
int sqlite3_config(int option, ...) { return 21; }
void *sqlite3_vfs_find(const char *name) { return 0; }
int sqlite3_vfs_register(void *vfs, int is_default) { return 1; }
int sqlite3_open(const char *name, void **database) { *database = (void *)ID; return 0; }
int sqlite3_open16(const void *name, void **database) { *database = (void *)ID; return 0; }
int sqlite3_open_v2(const char *name, void **database, int flags, const char *vfs)
{
	*database = flags == 6 && !vfs ? (void *)ID : 0;
	return 0;
}
int sqlite3_close(void *database) { return database == (void *)ID ? 0 : 99; }
