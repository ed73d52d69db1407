/*
 * Slurm looks at a released job only at its next scheduling pass, up to a second later. This plug-in asks for a pass
 * right after a release. It uses public headers only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

const char plugin_name[] = "smartmig: schedule at once after a release";
const char plugin_type[] = "job_submit/smartmig_kick";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

static void (*schedule_soon)(bool full_queue);

int init(void)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(21, 8, 0)
	/* A function of slurmctld itself, absent from libslurm; before 21.08 it had another signature. */
	schedule_soon = (void (*)(bool)) dlsym(RTLD_DEFAULT, "schedule");
#endif
	return SLURM_SUCCESS;
}

int fini(void)
{
	return SLURM_SUCCESS;
}

int job_submit(job_desc_msg_t *job, uint32_t uid, char **message)
{
	(void) job;
	(void) uid;
	(void) message;
	return SLURM_SUCCESS;
}

/* Later versions pass a fourth argument, a place for a message, which the caller also cleans up. */
int job_modify(job_desc_msg_t *job, void *record, uint32_t uid)
{
	(void) record;
	(void) uid;
	/* It only wakes the scheduling thread, which waits for the locks that this update holds. */
	if (schedule_soon != NULL && job->priority == INFINITE)
		schedule_soon(false);
	return SLURM_SUCCESS;
}
