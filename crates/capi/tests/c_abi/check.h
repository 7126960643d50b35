/* What the test programs share: a check that says what did not hold, and goes on. */
#ifndef CHECK_H
#define CHECK_H

#include <hugeleaf.h>

#include <stdio.h>
#include <string.h>

static int failures;

#define CHECK(holds)                                                                             \
    do {                                                                                         \
        if (!(holds)) {                                                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                          \
            failures++;                                                                          \
        }                                                                                        \
    } while (0)

/* The call ended so, said so, and said what to do next. */
#define ENDS(wanted, call)                                                                       \
    do {                                                                                         \
        memset(&error, 0x5a, sizeof error);                                                      \
        hl_status got = (call);                                                                  \
        if (got != (wanted) || error.status != got ||                                            \
            (got == HL_OK) != (error.what[0] == 0) || (got == HL_OK) != (error.next[0] == 0)) {  \
            fprintf(stderr, "%s:%d: %s: %d, error %d: '%s', '%s'\n", __FILE__, __LINE__, #call,  \
                    got, error.status, error.what, error.next);                                  \
            failures++;                                                                          \
        }                                                                                        \
    } while (0)

#endif
