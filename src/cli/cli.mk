noinst_LTLIBRARIES += libls_cli.la
libls_cli_la_SOURCES = \
	src/cli/cli.h \
	src/cli/templates.h \
	src/cli/apart.c \
	src/cli/apart.h \
	src/cli/check.c \
	src/cli/check_options.c \
	src/cli/check_options.h \
	src/cli/ckpt.c \
	src/cli/common.c \
	src/cli/config.c \
	src/cli/env.c \
	src/cli/exec.c \
	src/cli/hosts.c \
	src/cli/init.c \
	src/cli/launch.c \
	src/cli/launch.h \
	src/cli/plan.c \
	src/cli/plugin.c \
	src/cli/run.c \
	src/cli/run_options.c \
	src/cli/run_options.h \
	src/cli/relocate.c \
	src/cli/rules.c \
	src/cli/rules.h \
	src/cli/templates.c \
	src/cli/topo.c
libls_cli_la_CPPFLAGS = $(AM_CPPFLAGS) -DLS_SYSCONFDIR='"$(sysconfdir)"'
libls_cli_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)
# What only the worker program is made of.
noinst_LTLIBRARIES += libls_worker.la
libls_worker_la_SOURCES = src/cli/worker.h src/cli/worker.c src/cli/meet.c src/cli/fingerprint.c
libls_worker_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
# And the check program.
noinst_LTLIBRARIES += libls_checker.la
libls_checker_la_SOURCES = \
	src/cli/check_print.c \
	src/cli/check_print.h \
	src/cli/checker.c \
	src/cli/checker.h
libls_checker_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
EXTRA_DIST += src/cli/README.md
