noinst_LTLIBRARIES += libls_model.la
libls_model_la_SOURCES = \
	src/model/model.h \
	src/model/layers.c \
	src/model/model.c
EXTRA_DIST += src/model/README.md
