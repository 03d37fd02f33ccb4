# The half that the Slurm plugins use: libc only.
noinst_LTLIBRARIES += libls_topo.la
libls_topo_la_SOURCES = \
	src/topo/topo.h \
	src/topo/machine.h \
	src/topo/rules.h \
	src/topo/decide.h \
	src/topo/internal.h \
	src/topo/sysfs.h \
	src/topo/advice.c \
	src/topo/agree.c \
	src/topo/classify.c \
	src/topo/conf.c \
	src/topo/cpus.c \
	src/topo/decide.c \
	src/topo/explain.c \
	src/topo/fold.c \
	src/topo/gpu.c \
	src/topo/hostlist.c \
	src/topo/iface.c \
	src/topo/limits.c \
	src/topo/machine.c \
	src/topo/nic.c \
	src/topo/pci.c \
	src/topo/place.c \
	src/topo/runs.c \
	src/topo/site.c \
	src/topo/slurm.c \
	src/topo/sysfs.c \
	src/topo/text.c \
	src/topo/transport.c \
	src/topo/variables.c \
	src/topo/visible.c
# What only the launcher needs: NVML, trees as text, configuration files.
noinst_LTLIBRARIES += libls_topo_host.la
libls_topo_host_la_SOURCES = \
	src/topo/host.h \
	src/topo/nvml.h \
	src/topo/nvml_api.h \
	src/topo/tree.h \
	src/topo/host.c \
	src/topo/nvml.c \
	src/topo/nvml_api.c \
	src/topo/nvml_state.c \
	src/topo/save.c \
	src/topo/tree.c
EXTRA_DIST += src/topo/README.md
