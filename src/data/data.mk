# Data: IDX files, the keyed order of samples, the prefetching feed.
noinst_LTLIBRARIES += libls_data.la
libls_data_la_SOURCES = src/data/data.h src/data/internal.h src/data/idx.c src/data/gzip_head.c \
	src/data/dataset.c src/data/order.c src/data/pixels.c src/data/feed.c src/data/memory.c
libls_data_la_CFLAGS = $(AM_CFLAGS) $(LIBDEFLATE_CFLAGS)
libls_data_la_LIBADD = $(LIBDEFLATE_LIBS)
EXTRA_DIST += src/data/README.md
