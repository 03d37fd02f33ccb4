-- Client side of --lockstep-gpus: in srun, sbatch and salloc, turns the option into --gpus-per-node before
-- the job is sent. slurm.conf: CliFilterPlugins=cli_filter/lua; this file is then cli_filter.lua beside
-- slurm.conf. A site that has one of its own adds there, at the top
--     dofile("/usr/share/lockstep/cli_filter.lua")
-- and in its slurm_cli_pre_submit, before rules of its own
--     local status = lockstep_gpus(options)
--     if status ~= slurm.SUCCESS then return status end
-- Jobs without the option are not touched.

local function given(value)
    return value ~= nil and value ~= "" and value ~= "unset"
end

-- GPUs in a list such as "gres:gpu:a100:4,nic:1": their number, and the type of the last ones, "" where any will
-- do; nil if there are none in it.
local function gpus_in(list)
    local count, kind
    for item in string.gmatch(given(list) and list or "", "[^,]+") do
        item = item:gsub("^gres[:/]", "")
        local rest = item == "gpu" and "" or item:match("^gpu([:=].*)$")
        if rest then
            local number = rest:match("[:=](%d+)$")
            count = (count or 0) + (tonumber(number) or 1)
            kind = rest:sub(2, number and -#number - 2 or -1)
        end
    end
    return count, kind
end

-- The same of "a100:2,h100:1", as in the options that are for GPUs alone.
local function gpus_only(list)
    return gpus_in(given(list) and "gpu:" .. list:gsub(",", ",gpu:") or nil)
end

-- What cannot be meant together with so many GPUs on each node, as job_submit_lockstep has it; all else is for
-- Slurm's own checks. nil: nothing.
local function contradiction(options, gpus)
    local want, kind = gpus_only(gpus)
    local function other(name, count, type)
        if count and (count ~= want or type ~= kind) then
            return string.format("--lockstep-gpus=%s and --%s=%s: say it once", gpus, name, options[name])
        end
    end
    local said = other("gpus-per-node", gpus_only(options["gpus-per-node"])) or
        other("gres", gpus_in(options["gres"]))
    if said then
        return said
    end
    local low, high = tostring(options["nodes"]):match("^(%d+)-?(%d*)$")
    local nodes = (high == "" or high == low) and tonumber(low)
    local all = gpus_only(options["gpus"])
    if all and nodes and all ~= want * nodes then
        return string.format("--lockstep-gpus=%s asks for GPUs on each of %d nodes, and --gpus=%s for all: leave " ..
            "one of them out", gpus, nodes, options["gpus"])
    end
    local each, sockets = gpus_only(options["gpus-per-socket"]), tonumber(options["sockets-per-node"])
    if each and (sockets and each * sockets ~= want or each > want) then
        return string.format("--lockstep-gpus=%s asks for GPUs on each node, and --gpus-per-socket=%s for others: " ..
            "leave one of them out", gpus, options["gpus-per-socket"])
    end
    local task, tasks = gpus_only(options["gpus-per-task"]), tonumber(options["ntasks-per-node"])
    if task and tasks and task * tasks > want then
        return string.format("--lockstep-gpus=%s asks for GPUs on each node, where %d tasks with " ..
            "--gpus-per-task=%s need more: raise it, or leave --gpus-per-task out", gpus, tasks,
            options["gpus-per-task"])
    end
end

local function refuse(message)
    slurm.log_error("lockstep: %s", message)
    return slurm.ERROR
end

function lockstep_gpus(options)
    local spank = options["spank"]
    local gpus = spank and spank["lockstep"] and spank["lockstep"]["lockstep-gpus"]
    if not gpus or gpus == "" then
        return slurm.SUCCESS
    end
    -- A step of a job that is there already: its GPUs are given. Inside of the job the SPANK plugin says so, which
    -- does not see --jobid. LOCKSTEP_GPUS is ignored, as it is inside.
    local job = options["jobid"]
    if options["type"] == "srun" and os.getenv("SLURM_JOB_ID") then
        return slurm.SUCCESS
    elseif options["type"] == "srun" and given(job) then
        if gpus == os.getenv("LOCKSTEP_GPUS") then
            return slurm.SUCCESS
        end
        return refuse(string.format("--lockstep-gpus asks for an allocation, and --jobid=%s names one whose GPUs " ..
            "are given: say it to sbatch or salloc; a step takes a part of them with --gpus-per-node", job))
    end
    local said = contradiction(options, gpus)
    if said then
        return refuse(said)
    end
    if not gpus_in(options["gres"]) then
        options["gpus-per-node"] = gpus
    end
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
