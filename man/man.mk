# lockstep.cfg(5) is made from the schema; its rule is in src/job/job.mk.
dist_man_MANS += \
	man/lockstep.1 \
	man/lockstep-check.1 \
	man/lockstep-ckpt.1 \
	man/lockstep-config.1 \
	man/lockstep-env.1 \
	man/lockstep-exec.1 \
	man/lockstep-hosts.1 \
	man/lockstep-init.1 \
	man/lockstep-plan.1 \
	man/lockstep-plugin.1 \
	man/lockstep-run.1 \
	man/lockstep-site.conf.5 \
	man/lockstep-topo.1 \
	man/job_submit_lockstep.8 \
	man/spank_lockstep.8
