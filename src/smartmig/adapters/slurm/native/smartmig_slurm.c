/*
 * libslurm behind plain C types, so that Python needs to know no structure's layout. Records are text: fields end with
 * the unit separator (0x1f), records with the record separator (0x1e). Calls return 0 or a Slurm error number.
 *
 * A handle keeps its own copies: one thread per handle.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#define NO_CHANGE (-1)
#define SAME_NICE INT_MIN

typedef struct {
	char *text;
	size_t length;
	size_t room;
	time_t jobs_time;
	time_t nodes_time;
	time_t nodes_asked;
	int powers_down;
	time_t partitions_time;
	time_t reservations_time;
} handle_t;

static void put_raw(handle_t *h, const char *bytes, size_t n)
{
	if (h->length + n + 1 > h->room) {
		h->room = 2 * (h->length + n + 1) + 4096;
		h->text = realloc(h->text, h->room);
		if (h->text == NULL)
			abort();
	}
	memcpy(h->text + h->length, bytes, n);
	h->length += n;
	h->text[h->length] = 0;
}

/* Separators inside a user's string would shift the fields. */
static void put(handle_t *h, const char *value)
{
	if (value != NULL) {
		size_t from = h->length;
		put_raw(h, value, strlen(value));
		for (size_t at = from; at < h->length; at++)
			if ((unsigned char) h->text[at] < 0x20)
				h->text[at] = ' ';
	}
	put_raw(h, "\x1f", 1);
}

static void put_number(handle_t *h, long long value)
{
	char digits[32];
	int n = snprintf(digits, sizeof(digits), "%lld\x1f", value);
	put_raw(h, digits, (size_t) n);
}

static void end_record(handle_t *h)
{
	put_raw(h, "\x1e", 1);
}

static void put_hosts(handle_t *h, const char *ranges)
{
	size_t from = h->length;
	if (ranges != NULL && *ranges) {
		/* `hostlist_t` is the list itself from 23.11 on, a pointer to it before. */
		__typeof__(slurm_hostlist_create(ranges)) hosts = slurm_hostlist_create(ranges);
		char *host;
		while (hosts != NULL && (host = slurm_hostlist_shift(hosts)) != NULL) {
			if (h->length > from)
				put_raw(h, ",", 1);
			put_raw(h, host, strlen(host));
			free(host);
		}
		if (hosts != NULL)
			slurm_hostlist_destroy(hosts);
	}
	put_raw(h, "\x1f", 1);
}

typedef struct {
	uint32_t value;
	const char *name;
} word_t;

/* The names are those of Slurm's manual pages; the numbers are this machine's, and change between releases. */
static const word_t job_words[] = {
	{JOB_PENDING, "PENDING"},
	{JOB_RUNNING, "RUNNING"},
	{JOB_SUSPENDED, "SUSPENDED"},
	{JOB_COMPLETE, "COMPLETED"},
	{JOB_CANCELLED, "CANCELLED"},
	{JOB_FAILED, "FAILED"},
	{JOB_TIMEOUT, "TIMEOUT"},
	{JOB_NODE_FAIL, "NODE_FAIL"},
	{JOB_PREEMPTED, "PREEMPTED"},
	{JOB_BOOT_FAIL, "BOOT_FAIL"},
	{JOB_DEADLINE, "DEADLINE"},
	{JOB_OOM, "OUT_OF_MEMORY"},
};
static const word_t job_flags[] = {
	{JOB_COMPLETING, "COMPLETING"},
	{JOB_CONFIGURING, "CONFIGURING"},
	{JOB_REQUEUE_HOLD, "REQUEUE_HOLD"},
	{JOB_SPECIAL_EXIT, "SPECIAL_EXIT"},
	{JOB_STAGE_OUT, "STAGE_OUT"},
	{JOB_REVOKED, "REVOKED"},
};
static const word_t reason_words[] = {
	{WAIT_HELD, "JobHeldAdmin"},
	{WAIT_HELD_USER, "JobHeldUser"},
	{WAIT_DEPENDENCY, "Dependency"},
	{WAIT_DEP_INVALID, "DependencyNeverSatisfied"},
	{WAIT_TIME, "BeginTime"},
	{WAIT_RESOURCES, "Resources"},
	{WAIT_PRIORITY, "Priority"},
	{WAIT_PART_DOWN, "PartitionDown"},
	{WAIT_PART_INACTIVE, "PartitionInactive"},
	{WAIT_PART_TIME_LIMIT, "PartitionTimeLimit"},
	{WAIT_PART_NODE_LIMIT, "PartitionNodeLimit"},
	{WAIT_LICENSES, "Licenses"},
	{WAIT_NODE_NOT_AVAIL, "ReqNodeNotAvail"},
	{WAIT_RESERVATION, "Reservation"},
	{WAIT_CLEANING, "Cleaning"},
	{FAIL_BAD_CONSTRAINTS, "BadConstraints"},
};
static const word_t node_words[] = {
	{NODE_STATE_DOWN, "DOWN"},
	{NODE_STATE_IDLE, "IDLE"},
	{NODE_STATE_ALLOCATED, "ALLOCATED"},
	{NODE_STATE_ERROR, "ERROR"},
	{NODE_STATE_MIXED, "MIXED"},
	{NODE_STATE_FUTURE, "FUTURE"},
};
static const word_t node_flags[] = {
	{NODE_STATE_DRAIN, "DRAIN"},
	{NODE_STATE_COMPLETING, "COMPLETING"},
	{NODE_STATE_NO_RESPOND, "NOT_RESPONDING"},
	{NODE_STATE_POWERED_DOWN, "POWERED_DOWN"},
	{NODE_STATE_FAIL, "FAIL"},
	{NODE_STATE_POWERING_UP, "POWERING_UP"},
	{NODE_STATE_MAINT, "MAINTENANCE"},
	{NODE_STATE_REBOOT_REQUESTED, "REBOOT_REQUESTED"},
	{NODE_STATE_POWERING_DOWN, "POWERING_DOWN"},
	{NODE_STATE_REBOOT_ISSUED, "REBOOT_ISSUED"},
	{NODE_STATE_INVALID_REG, "INVALID_REG"},
	{NODE_STATE_POWER_DOWN, "POWER_DOWN"},
};

#define PUT_STATE(h, word, base, words, flags) \
	put_state(h, word, base, words, sizeof(words) / sizeof(word_t), flags, sizeof(flags) / sizeof(word_t))

static void put_state(handle_t *h, uint32_t word, uint32_t base, const word_t *words, size_t n_words,
		      const word_t *flags, size_t n_flags)
{
	const char *name = "UNKNOWN";
	for (size_t at = 0; at < n_words; at++)
		if ((word & base) == words[at].value)
			name = words[at].name;
	put_raw(h, name, strlen(name));
	for (size_t at = 0; at < n_flags; at++)
		if (word & flags[at].value) {
			put_raw(h, "+", 1);
			put_raw(h, flags[at].name, strlen(flags[at].name));
		}
	put_raw(h, "\x1f", 1);
}

static void put_reason(handle_t *h, uint32_t reason)
{
	for (size_t at = 0; at < sizeof(reason_words) / sizeof(word_t); at++)
		if (reason == reason_words[at].value) {
			put(h, reason_words[at].name);
			return;
		}
	put_number(h, reason);
}

/* Minutes, empty without a limit. */
static void put_minutes(handle_t *h, uint32_t minutes)
{
	if (minutes == INFINITE || minutes == NO_VAL)
		put(h, NULL);
	else
		put_number(h, minutes);
}

static void begin_text(handle_t *h)
{
	h->length = 0;
	put_raw(h, "", 0);
}

static int failed(void)
{
	int code = slurm_get_errno();
	if (code == SLURM_NO_CHANGE_IN_DATA)
		return NO_CHANGE;
	return code != 0 ? code : SLURM_ERROR;
}

int smartmig_init(const char *conf)
{
	/* Otherwise lists of array tasks are cut short. */
	setenv("SLURM_BITSTR_LEN", "0", 1);
	slurm_init(conf != NULL && *conf ? conf : NULL);
	return 0;
}

void *smartmig_open(void)
{
	handle_t *h = calloc(1, sizeof(handle_t));
	if (h != NULL)
		begin_text(h);
	return h;
}

void smartmig_close(void *handle)
{
	handle_t *h = handle;
	if (h != NULL) {
		free(h->text);
		free(h);
	}
}

/* The next answers are whole ones again: for when one was lost. */
void smartmig_forget(void *handle)
{
	handle_t *h = handle;
	h->jobs_time = h->nodes_time = h->partitions_time = h->reservations_time = 0;
}

const char *smartmig_text(void *handle)
{
	return ((handle_t *) handle)->text;
}

long smartmig_length(void *handle)
{
	return (long) ((handle_t *) handle)->length;
}

const char *smartmig_error(int code)
{
	return slurm_strerror(code);
}

/* When the controller started; 0 = it did not say. */
int smartmig_boot(long *boot)
{
	slurm_conf_t *conf = NULL;
	if (slurm_load_ctl_conf(0, &conf))
		return failed();
	*boot = (long) conf->boot_time;
	slurm_free_ctl_conf(conf);
	return 0;
}

static void put_job(handle_t *h, const slurm_job_info_t *job)
{
	put_number(h, job->job_id);
	put_number(h, job->array_job_id);
	if (job->array_task_id == NO_VAL)
		put(h, NULL);
	else
		put_number(h, job->array_task_id);
	put(h, job->array_task_str);
	put_number(h, job->array_max_tasks);
	PUT_STATE(h, job->job_state, JOB_STATE_BASE, job_words, job_flags);
	put_reason(h, job->state_reason);
	put(h, job->partition);
	put_number(h, job->priority);
	put_number(h, (long long) job->nice - NICE_OFFSET);
	put_number(h, job->submit_time);
	put_number(h, job->eligible_time);
	put_number(h, job->start_time);
	put_number(h, job->end_time);
	put_minutes(h, job->time_limit);
	put_number(h, job->user_id);
	put(h, job->account);
	put_hosts(h, job->nodes);
	put_number(h, job->num_nodes);
	put_number(h, job->max_nodes);
	put_number(h, job->num_cpus);
	put_number(h, job->num_tasks == NO_VAL ? 1 : job->num_tasks);
	put_number(h, (long long) (job->pn_min_memory & ~MEM_PER_CPU));
	put_number(h, (job->pn_min_memory & MEM_PER_CPU) != 0);
	put(h, job->tres_per_node);
	put(h, job->tres_per_job);
	put(h, job->tres_per_socket);
	put(h, job->tres_per_task);
	size_t from = h->length;
	for (uint32_t at = 0; at < job->gres_detail_cnt; at++) {
		const char *detail = job->gres_detail_str[at];
		if (h->length > from || at > 0)
			put_raw(h, ";", 1);
		if (detail != NULL)
			put_raw(h, detail, strlen(detail));
	}
	put_raw(h, "\x1f", 1);
	put(h, job->dependency);
	put_number(h, job->het_job_id);
	put(h, job->features);
	put_hosts(h, job->exc_nodes);
	put_hosts(h, job->req_nodes);
	put(h, job->resv_name);
	put_number(h, job->shared);
	put(h, job->comment);
	put(h, job->admin_comment);
	put(h, job->cpus_per_tres);
	put(h, job->mem_per_tres);
	end_record(h);
}

/* Jobs that wait for `partition` or hold resources anywhere. */
int smartmig_jobs(void *handle, const char *partition)
{
	handle_t *h = handle;
	job_info_msg_t *message = NULL;
	if (slurm_load_jobs(h->jobs_time, &message, SHOW_ALL | SHOW_DETAIL))
		return failed();
	h->jobs_time = message->last_update;
	begin_text(h);
	for (uint32_t at = 0; at < message->record_count; at++) {
		const slurm_job_info_t *job = &message->job_array[at];
		uint32_t base = job->job_state & JOB_STATE_BASE;
		if (base == JOB_PENDING) {
			if (job->partition == NULL || strstr(job->partition, partition) == NULL)
				continue;
		} else if (base > JOB_SUSPENDED && !(job->job_state & JOB_COMPLETING)) {
			continue;
		}
		put_job(h, job);
	}
	slurm_free_job_info_msg(message);
	return 0;
}

int smartmig_job(void *handle, unsigned int job_id)
{
	handle_t *h = handle;
	job_info_msg_t *message = NULL;
	if (slurm_load_job(&message, job_id, SHOW_ALL | SHOW_DETAIL))
		return failed();
	begin_text(h);
	for (uint32_t at = 0; at < message->record_count; at++)
		put_job(h, &message->job_array[at]);
	slurm_free_job_info_msg(message);
	return 0;
}

int smartmig_nodes(void *handle)
{
	handle_t *h = handle;
	node_info_msg_t *message = NULL;
	/* That a node is switched off now, Slurm does not count as a change: so it is asked for once a second. */
	time_t now = time(NULL);
	time_t since = h->powers_down && now != h->nodes_asked ? 0 : h->nodes_time;
	if (slurm_load_node(since, &message, SHOW_ALL | SHOW_DETAIL))
		return failed();
	h->nodes_time = message->last_update;
	h->nodes_asked = now;
	h->powers_down = 0;
	begin_text(h);
	for (uint32_t at = 0; at < message->record_count; at++) {
		node_info_t *node = &message->node_array[at];
		uint16_t cpus = 0;
		uint64_t memory = 0;
		if (node->name == NULL)
			continue;
		if (node->node_state & (NODE_STATE_POWERING_DOWN | NODE_STATE_POWER_DOWN))
			h->powers_down = 1;
		slurm_get_select_nodeinfo(node->select_nodeinfo, SELECT_NODEDATA_SUBCNT, NODE_STATE_ALLOCATED, &cpus);
		slurm_get_select_nodeinfo(node->select_nodeinfo, SELECT_NODEDATA_MEM_ALLOC, NODE_STATE_ALLOCATED, &memory);
		put(h, node->name);
		PUT_STATE(h, node->node_state, NODE_STATE_BASE, node_words, node_flags);
		put(h, node->gres);
		put(h, node->gres_used);
		put_number(h, node->cpus_efctv);
		put_number(h, cpus);
		put_number(h, (long long) node->real_memory);
		put_number(h, (long long) memory);
		put(h, node->features_act != NULL ? node->features_act : node->features);
		put(h, node->comment);
		end_record(h);
	}
	slurm_free_node_info_msg(message);
	return 0;
}

int smartmig_partitions(void *handle)
{
	handle_t *h = handle;
	partition_info_msg_t *message = NULL;
	if (slurm_load_partitions(h->partitions_time, &message, SHOW_ALL))
		return failed();
	h->partitions_time = message->last_update;
	begin_text(h);
	for (uint32_t at = 0; at < message->record_count; at++) {
		partition_info_t *part = &message->partition_array[at];
		put(h, part->name);
		/* One that drains takes no new jobs, but starts those that it has. */
		put(h, part->state_up & PARTITION_SCHED ? "UP" : "DOWN");
		put_hosts(h, part->nodes);
		put_minutes(h, part->max_time);
		end_record(h);
	}
	slurm_free_partition_info_msg(message);
	return 0;
}

int smartmig_reservations(void *handle)
{
	handle_t *h = handle;
	reserve_info_msg_t *message = NULL;
	if (slurm_load_reservations(h->reservations_time, &message))
		return failed();
	h->reservations_time = message->last_update;
	begin_text(h);
	for (uint32_t at = 0; at < message->record_count; at++) {
		reserve_info_t *reservation = &message->reservation_array[at];
		put(h, reservation->name);
		put_hosts(h, reservation->node_list);
		put_number(h, reservation->start_time);
		put_number(h, reservation->end_time);
		end_record(h);
	}
	slurm_free_reservation_info_msg(message);
	return 0;
}

/* An answer comes in parts, one for each array task. */
static int first_error(const job_array_resp_msg_t *answer)
{
	for (uint32_t at = 0; answer != NULL && at < answer->job_array_count; at++)
		if (answer->error_code[at] != 0)
			return (int) answer->error_code[at];
	return 0;
}

static int update(job_desc_msg_t *request)
{
	job_array_resp_msg_t *answer = NULL;
	int code = slurm_update_job2(request, &answer) ? failed() : 0;
	if (code == 0)
		code = first_error(answer);
	slurm_free_job_array_resp(answer);
	return code;
}

/*
 * Pin and release in one call. No `nodes`: the pin stays as it is; empty ones take it away. A `begin` above 0 is the
 * earliest start. `nice` may be SAME_NICE.
 */
int smartmig_release(const char *job, const char *nodes, const char *partition, const char *mark, long begin,
		     int nice)
{
	job_desc_msg_t request;
	slurm_init_job_desc_msg(&request);
	request.job_id_str = (char *) job;
	request.priority = INFINITE;
	request.admin_comment = (char *) mark;
	if (nodes != NULL)
		request.req_nodes = (char *) nodes;
	if (nice != SAME_NICE)
		request.nice = NICE_OFFSET + (uint32_t) nice;
	if (begin > 0)
		request.begin_time = (time_t) begin;
	if (partition != NULL && *partition)
		request.partition = (char *) partition;
	return update(&request);
}

/*
 * A hold that Slurm counts as the owner's, as that of the submit script. No `nodes`: the pin stays as it is; empty ones
 * take it away. `nice` may be SAME_NICE.
 */
int smartmig_hold(const char *job, const char *mark, const char *nodes, int nice)
{
	job_desc_msg_t request;
	/* Slurm reckons the priority anew from the niceness, which would end a hold: so that comes first. */
	if (nice != SAME_NICE) {
		slurm_init_job_desc_msg(&request);
		request.job_id_str = (char *) job;
		request.nice = NICE_OFFSET + (uint32_t) nice;
		int code = update(&request);
		if (code != 0)
			return code;
	}
	slurm_init_job_desc_msg(&request);
	request.job_id_str = (char *) job;
	request.priority = 0;
	request.alloc_sid = ALLOC_SID_USER_HOLD;
	request.admin_comment = (char *) mark;
	if (nodes != NULL)
		request.req_nodes = (char *) nodes;
	return update(&request);
}

int smartmig_requeue(const char *job)
{
	job_array_resp_msg_t *answer = NULL;
	int code = slurm_requeue2((char *) job, 0, &answer) ? failed() : 0;
	if (code == 0)
		code = first_error(answer);
	slurm_free_job_array_resp(answer);
	return code;
}

int smartmig_set_node(const char *node, const char *gres, const char *comment)
{
	update_node_msg_t request;
	slurm_init_update_node_msg(&request);
	request.node_names = (char *) node;
	request.gres = (char *) gres;
	if (comment != NULL)
		request.comment = (char *) comment;
	return slurm_update_node(&request) ? failed() : 0;
}
