noinst_LTLIBRARIES += libls_ckpt.la
libls_ckpt_la_SOURCES = \
	src/ckpt/ckpt.h \
	src/ckpt/dir.h \
	src/ckpt/internal.h \
	src/ckpt/manifest.h \
	src/ckpt/ckpt.c \
	src/ckpt/inspect.c \
	src/ckpt/load.c \
	src/ckpt/manifest.c \
	src/ckpt/safetensors.c \
	src/ckpt/safetensors_write.c \
	src/ckpt/save.c \
	src/ckpt/store.c \
	src/ckpt/text.c \
	src/ckpt/verify.c
libls_ckpt_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)
libls_ckpt_la_LIBADD = $(JANSSON_LIBS) $(XXHASH_LIBS)
