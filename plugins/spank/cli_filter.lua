-- Client side of --lockstep-gpus: in srun, sbatch and salloc, turns the option into --gpus-per-node before
-- the job is sent. slurm.conf: CliFilterPlugins=cli_filter/lua; this file is then cli_filter.lua beside
-- slurm.conf. A site that has one of its own adds there, at the top
--     dofile("/usr/share/lockstep/cli_filter.lua")
-- and in its slurm_cli_pre_submit, before rules of its own
--     local status = lockstep_gpus(options)
--     if status ~= slurm.SUCCESS then return status end
-- Jobs without the option are not touched.

-- Is this srun a step of a job that is there already? Then its GPUs are given.
local function is_step(options)
    local job = options["jobid"]
    return options["type"] == "srun" and
        (os.getenv("SLURM_JOB_ID") ~= nil or (job ~= nil and job ~= "unset" and job ~= ""))
end

function lockstep_gpus(options)
    local spank = options["spank"]
    local gpus = spank and spank["lockstep"] and spank["lockstep"]["lockstep-gpus"]
    if not gpus or gpus == "" or is_step(options) then
        return slurm.SUCCESS
    end
    local other = options["gpus-per-node"]
    if other and other ~= "" and other ~= gpus then
        slurm.log_error("lockstep: --lockstep-gpus=%s and --gpus-per-node=%s: say it once",
                        gpus, other)
        return slurm.ERROR
    end
    options["gpus-per-node"] = gpus
    return slurm.SUCCESS
end

function slurm_cli_setup_defaults(options, early_pass)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
    return lockstep_gpus(options)
end

function slurm_cli_post_submit(offset, job_id, step_id)
    return slurm.SUCCESS
end
