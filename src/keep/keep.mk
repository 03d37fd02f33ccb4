noinst_LTLIBRARIES += libls_keep.la
libls_keep_la_SOURCES = \
	src/keep/keep.h \
	src/keep/internal.h \
	src/keep/cpus.c \
	src/keep/events.c \
	src/keep/record.c \
	src/keep/start.c
EXTRA_DIST += src/keep/README.md
