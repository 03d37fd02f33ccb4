noinst_LTLIBRARIES += libls_keep.la
libls_keep_la_SOURCES = \
	src/keep/keep.h \
	src/keep/internal.h \
	src/keep/cpus.c \
	src/keep/events.c \
	src/keep/output.c \
	src/keep/output.h \
	src/keep/program.c \
	src/keep/record.c \
	src/keep/rules.c \
	src/keep/rules.h \
	src/keep/start.c \
	src/keep/stop.c \
	src/keep/variables.c \
	src/keep/variables.h \
	src/keep/window.c \
	src/keep/worker.c
EXTRA_DIST += src/keep/README.md
