/* Loads objects and has each use its SQLite: -g PATH loads for all, -l PATH for itself alone, -u uses all, -j jumps, -d asks
   the loader. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef OWN
const char mark[] = "SQLite format 3";
#endif

int main(int count, char **words)
{
	void *loaded[9];
	int all = 0;
	for (int at = 1; at < count; at++) {
		if (!strcmp(words[at], "-g") || !strcmp(words[at], "-l")) {
			int how = words[at][1] == 'g' ? RTLD_GLOBAL : RTLD_LOCAL;
			loaded[all] = dlopen(words[++at], RTLD_NOW | how);
			if (!loaded[all++]) return puts(dlerror()), 9;
		} else if (!strcmp(words[at], "-d")) {
			int (*find)(const char *, void **) = dlsym(RTLD_DEFAULT, "sqlite3_open");
			void *database = 0;
			int done = find ? find("x", &database) : -1;
			printf("asked: %d %ld\n", done, (long)database);
		} else {
			for (int of = 0; of < all; of++) {
				void (*use)(void) = dlsym(loaded[of], "use");
				int (*jump)(const char *, void **) = dlsym(loaded[of], "jump");
				void *database = 0;
				if (use && words[at][1] == 'u') use();
				if (jump && words[at][1] == 'j') printf("jump: %d %ld\n", jump("x", &database), (long)database);
			}
		}
	}
	fflush(stdout);
	return 0;
}
