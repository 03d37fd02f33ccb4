noinst_LTLIBRARIES += libls_topo.la
libls_topo_la_SOURCES = \
	src/topo/topo.h \
	src/topo/internal.h \
	src/topo/agree.c \
	src/topo/fold.c \
	src/topo/hostlist.c \
	src/topo/runs.c \
	src/topo/slurm.c \
	src/topo/text.c \
	src/topo/visible.c
EXTRA_DIST += src/topo/README.md
