-- smartmig: jobs of one partition that ask for GPUs wait for smartmig's decision.
-- Written by `smartmig slurm install`, removed by `smartmig slurm uninstall`.
--
-- This script runs under the controller's locks, so it only marks; deciding happens elsewhere. A job is held with
-- priority 0, and its administrator's comment says that it was us. Owners and operators may hold and release jobs as
-- before: their hold is a word in the job's own comment, because Slurm cannot tell our hold from theirs.

local PARTITION = "@PARTITION@"
local DAEMON_UID = @DAEMON_UID@
local OFF_FILE = "@OFF_FILE@"
local SITE_SCRIPT = "@SITE_SCRIPT@"
local HELD = "@HELD_MARK@"
local PARKED = "@PARKED_MARK@"
local USER_HOLD = "@USER_HOLD@"

-- The site's own script, if it had one, is asked first.
local site_submit, site_modify
if SITE_SCRIPT ~= "" then
   local chunk = assert(loadfile(SITE_SCRIPT))
   chunk()
   site_submit, site_modify = slurm_job_submit, slurm_job_modify
end

local function switched_off()
   local file = io.open(OFF_FILE, "r")
   if file then file:close() end
   return file ~= nil
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

local function asks_gpus(job)
   local asked = table.concat({
      job.tres_per_node or "", job.tres_per_job or "", job.tres_per_socket or "", job.tres_per_task or ""}, ",")
   for word in string.gmatch(asked, "%a[%w_]*") do
      if word == "gpu" or word == "mig" then return true end
   end
   return false
end

local function without_hold(comment)
   local at = string.find(comment, USER_HOLD, 1, true)
   if at == nil then return comment end
   return (string.sub(comment, 1, at - 1) .. string.sub(comment, at + #USER_HOLD)):gsub("%s+$", "")
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
   if names_ours(job.partition, part_list) and asks_gpus(job) and not switched_off() then
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
   -- The daemon writes its mark with everything it does; but an owner's hold that it has not seen yet counts.
   if operator and job.admin_comment ~= nil then
      local starts = string.find(job.admin_comment, "^smartmig start") ~= nil
      if starts and string.find(record.comment or "", USER_HOLD, 1, true) then return slurm.ERROR end
      return slurm.SUCCESS
   end
   if switched_off() then return slurm.SUCCESS end
   local marked = string.find(record.admin_comment or "", "^smartmig ") ~= nil
   if not marked then
      local moves = job.partition ~= nil and names_ours(job.partition, part_list) and asks_gpus(record)
      if moves and not operator then return refuse(record, uid, "move into partition " .. PARTITION) end
      return slurm.SUCCESS
   end
   if not operator then
      if job.partition ~= nil and job.partition ~= record.partition then
         return refuse(record, uid, "move out of partition " .. PARTITION)
      end
      if job.req_nodes ~= nil then return refuse(record, uid, "pin") end
      local begins = job.begin_time ~= nil and job.begin_time ~= 0 and job.begin_time ~= slurm.NO_VAL
      if begins and string.find(record.admin_comment, PARKED, 1, true) == 1 then
         return refuse(record, uid, "set the start of")
      end
   end
   if job.priority ~= slurm.NO_VAL and job.priority ~= nil then
      local comment = job.comment or record.comment or ""
      local asked = without_hold(comment)
      local was_held = asked ~= comment
      if job.priority == 0 then asked = asked .. " " .. USER_HOLD end
      -- Slurm takes an empty text for no change.
      if asked ~= comment then job.comment = asked ~= "" and asked or " " end
      -- A release ends the owner's hold, and the job queues again. Only an operator can start a job past smartmig.
      if was_held or not operator then job.priority = 0 end
   end
   return slurm.SUCCESS
end

slurm.log_info("smartmig: jobs of partition %s are held for smartmig", PARTITION)
return slurm.SUCCESS
