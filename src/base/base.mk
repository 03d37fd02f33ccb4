noinst_LTLIBRARIES += libls_base.la
libls_base_la_SOURCES = \
	src/base/base.h \
	src/base/arena.c \
	src/base/error.c \
	src/base/file.c \
	src/base/random.c \
	src/base/size.c \
	src/base/text.c \
	src/base/time.c
EXTRA_DIST += src/README.md src/base/README.md
