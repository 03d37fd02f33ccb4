noinst_LTLIBRARIES += libls_watch.la
libls_watch_la_SOURCES = \
	src/watch/watch.h \
	src/watch/metrics.c \
	src/watch/progress.c
libls_watch_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
EXTRA_DIST += src/watch/README.md
