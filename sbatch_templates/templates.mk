# Job descriptions with the results that were measured; installed for `lockstep init` readers.
dist_templates_DATA += \
	sbatch_templates/fashion-mnist.cfg \
	sbatch_templates/fashion-mnist-mlp.cfg
