/* Test Anything Protocol in one header: one line per check, a plan at the end, details behind '#'.
 * A test that needs something absent says so loudly with tap_skip_all and is never silently green.
 */
#ifndef LS_TAP_H
#define LS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 2, 3), unused)) static bool tap_ok(bool pass, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tap_failed += !pass;
    printf("%s %d - ", pass ? "ok" : "not ok", ++tap_count);
    vprintf(fmt, ap);
    putchar('\n');
    fflush(stdout);
    va_end(ap);
    return pass;
}

__attribute__((format(printf, 1, 2), unused)) static void tap_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("# ", stdout);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

/* The whole test cannot run here: CI must never see this. */
__attribute__((format(printf, 1, 2), unused, noreturn)) static void tap_skip_all(const char *fmt,
                                                                                 ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("1..0 # SKIP ", stdout);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    exit(0);
}

__attribute__((unused)) static int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}

#endif
