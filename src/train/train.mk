noinst_LTLIBRARIES += libls_train.la
libls_train_la_SOURCES = \
	src/train/ranks.h \
	src/train/run.h \
	src/train/train.h \
	src/train/compare.c \
	src/train/eval.c \
	src/train/loop.c \
	src/train/open.c \
	src/train/ranks.c \
	src/train/save.c \
	src/train/schedule.c \
	src/train/state.c
EXTRA_DIST += src/train/README.md
