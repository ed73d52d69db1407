-- smartmig: jobs of one partition that ask for GPUs wait for smartmig's decision.
-- Written by `smartmig slurm install`, removed by `smartmig slurm uninstall`.
--
-- This script runs under the controller's locks, so it only marks; deciding happens elsewhere. A job is held with
-- priority 0, and its administrator's comment says that it was us. Owners and operators may hold and release jobs as
-- before: their hold is a word in the job's own comment, because Slurm cannot tell our hold from theirs. The word is
-- kept right while smartmig is switched off, too.

local PARTITION = "@PARTITION@"
local DAEMON_UID = @DAEMON_UID@
local OFF_FILE = "@OFF_FILE@"
local MANIFEST = "@MANIFEST@"
local SITE_SCRIPT = "@SITE_SCRIPT@"
local HELD = "@HELD_MARK@"
local HOLDING = "@HOLDING_MARK@"
local PARKED = "@PARKED_MARK@"
local USER_HOLD = "@USER_HOLD@"
-- A job that smartmig does not hold must not start before smartmig has seen that somebody let it go.
local LATER_S = 5

-- The site's own script, if it had one, is asked first.
local site_submit, site_modify
if SITE_SCRIPT ~= "" then
   local chunk = assert(loadfile(SITE_SCRIPT))
   chunk()
   site_submit, site_modify = slurm_job_submit, slurm_job_modify
end

local NOT_THERE = 2

-- A file that may not be read is there.
local function is_there(path)
   local file, _, code = io.open(path, "r")
   if file then file:close() end
   return file ~= nil or code ~= NOT_THERE
end

-- slurmctld goes on with this script after it is gone, until it restarts; nobody would let go of what it held then.
local function switched_off()
   return is_there(OFF_FILE) or not is_there(MANIFEST)
end

local function is_default(part_list)
   local part = part_list[PARTITION]
   return part ~= nil and part.flag_default == 1
end

local function names_ours(partitions, part_list)
   if partitions == nil or partitions == "" then return is_default(part_list) end
   for name in string.gmatch(partitions, "[^,]+") do
      if name == PARTITION then return true end
   end
   return false
end

-- `gpu:0` asks for none.
local function asks_gpus(job)
   local asked = table.concat({
      job.tres_per_node or "", job.tres_per_job or "", job.tres_per_socket or "", job.tres_per_task or ""}, ",")
   for word in string.gmatch(asked, "[^,]+") do
      local resource = string.gsub(word, "^gres[:/]", "")
      local name, count = string.match(resource, "^(%a[%w_]*)(.*)$")
      if (name == "gpu" or name == "mig") and not string.find(count, "[:=]0+%a?$") then return true end
   end
   return false
end

-- Its parts start together, which only Slurm can do.
local function is_part(job)
   return job.het_job_offset ~= nil and job.het_job_offset ~= slurm.NO_VAL
end

local function noted(comment)
   return string.find(comment, USER_HOLD, 1, true) ~= nil
end

local function without_hold(comment)
   local at = string.find(comment, USER_HOLD, 1, true)
   if at == nil then return comment end
   return (string.sub(comment, 1, at - 1) .. string.sub(comment, at + #USER_HOLD)):gsub("%s+$", "")
end

-- Whether somebody else holds the job. Slurm takes an empty text for no change.
local function note(job, comment, held)
   local before = job.comment or comment
   local after = without_hold(before)
   if held then after = after .. " " .. USER_HOLD end
   if after ~= before then job.comment = after ~= "" and after or " " end
end

-- Slurm 22.05 has no way to show the owner a sentence here, so the log has it.
local function refuse(record, uid, what)
   slurm.log_info("smartmig: user %d may not %s job %d", uid, what, record.job_id)
   return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR
end

function slurm_job_submit(job, part_list, uid)
   if site_submit then
      local code = site_submit(job, part_list, uid)
      if code ~= slurm.SUCCESS then return code end
   end
   if names_ours(job.partition, part_list) and asks_gpus(job) and not is_part(job) and not switched_off() then
      local comment = without_hold(job.comment or "")
      if job.priority == 0 then comment = comment .. " " .. USER_HOLD end
      if comment ~= (job.comment or "") then job.comment = comment end
      job.priority = 0
      job.admin_comment = HELD
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, part_list, uid)
   if site_modify then
      local code = site_modify(job, record, part_list, uid)
      if code ~= slurm.SUCCESS then return code end
   end
   local operator = uid == 0 or uid == DAEMON_UID
   local mark, comment = record.admin_comment or "", record.comment or ""
   local holds = job.priority == 0
   local lets_go = job.priority ~= nil and job.priority ~= slurm.NO_VAL and not holds
   -- The daemon writes its mark with everything it does; but an owner's hold that it has not seen yet counts. So does
   -- another job under that id: a controller that lost its state begins to count anew.
   if operator and job.admin_comment ~= nil then
      local submitted = string.match(job.admin_comment, "^smartmig start submit=(%d+)")
      local is_another = record.submit_time ~= nil and tonumber(submitted) ~= record.submit_time
      if submitted ~= nil and (noted(comment) or is_another) then return slurm.ERROR end
      if holds and record.priority ~= 0 then note(job, comment, false) end
      return slurm.SUCCESS
   end
   -- By scontrol it takes two calls.
   if operator and holds and mark == HOLDING and record.priority ~= 0 then
      job.admin_comment = HELD
      note(job, comment, false)
      return slurm.SUCCESS
   end
   local off = switched_off()
   if string.find(mark, "^smartmig ") == nil then
      local moves = job.partition ~= nil and names_ours(job.partition, part_list) and asks_gpus(record)
      if moves and not off and not operator then return refuse(record, uid, "move into partition " .. PARTITION) end
      return slurm.SUCCESS
   end
   -- Slurm reckons the priority of a held job anew from its niceness, and so lets it go.
   if job.nice ~= nil and job.nice ~= slurm.NO_VAL and record.priority == 0 and not off then
      return refuse(record, uid, "set the niceness of the held")
   end
   local parked = string.find(mark, PARKED, 1, true) == 1
   if not off and not operator then
      if job.partition ~= nil and job.partition ~= record.partition then
         return refuse(record, uid, "move out of partition " .. PARTITION)
      end
      if job.req_nodes ~= nil then return refuse(record, uid, "pin") end
      local begins = job.begin_time ~= nil and job.begin_time ~= 0 and job.begin_time ~= slurm.NO_VAL
      if begins and parked then return refuse(record, uid, "set the start of") end
   end
   if holds or lets_go or job.comment ~= nil then
      note(job, comment, holds or (noted(comment) and not lets_go))
   end
   -- A release ends the owner's hold, and the job queues again. Only an operator can start a job past smartmig.
   if lets_go and not off and (noted(comment) or not operator) then
      if parked or mark == HELD then
         job.priority = 0
      else
         job.begin_time = math.max(os.time() + LATER_S, record.begin_time or 0)
      end
   end
   return slurm.SUCCESS
end

slurm.log_info("smartmig: jobs of partition %s are held for smartmig", PARTITION)
return slurm.SUCCESS
