noinst_LTLIBRARIES += libls_cli.la
libls_cli_la_SOURCES = \
	src/cli/cli.h \
	src/cli/templates.h \
	src/cli/ckpt.c \
	src/cli/common.c \
	src/cli/config.c \
	src/cli/hosts.c \
	src/cli/init.c \
	src/cli/plan.c \
	src/cli/run.c \
	src/cli/templates.c
libls_cli_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)
EXTRA_DIST += src/cli/README.md
