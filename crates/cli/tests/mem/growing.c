/* A program whose heap grows and shrinks without a pause, until its standard input ends. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *breathe(void *unused)
{
	const long step = 256 << 10, steps = 800;

	for (;;) {
		for (long i = 0; i < steps; i++) {
			char *p = sbrk(step);
			if (p == (void *)-1)
				break;
			memset(p, 1, step);
			usleep(200);
		}
		sbrk(-steps * step);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	char byte;

	if (pthread_create(&thread, NULL, breathe, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
