// SPDX-License-Identifier: GPL-2.0
/*
 * The scheduler. Each file has a queue of jobs. Users take turns, and a user's files take that
 * user's: opening many files gives no more of the board's time than opening one.
 *
 * Everything here that runs under the board's lock takes constant time, however many users, files
 * and jobs wait.
 */
#include "engine.h"

/* Sets of engines of a channel. */
#define SETS		(1 << PEERDMA_DIRECTIONS)

/* The engines that the first jobs of the files in a list of ready ones need, a bit for each. */
static unsigned int scheduler_engines(unsigned int list)
{
	return (list % SETS) << (list / SETS * PEERDMA_DIRECTIONS);
}

/* The list for those whose first job is this one. */
static unsigned int scheduler_list(const struct peerdma_job *job)
{
	return job->channel * SETS + (job->legs[PEERDMA_H2C].used << PEERDMA_H2C |
				      job->legs[PEERDMA_C2H].used << PEERDMA_C2H);
}

/* Where a file is while this is its first job. */
static struct peerdma_line *scheduler_line(const struct peerdma_job *job)
{
	return &job->file->share->lines[scheduler_list(job)];
}

static struct peerdma_file *scheduler_first_file(struct peerdma_line *line)
{
	return list_first_entry(&line->files, struct peerdma_file, on_ready);
}

/**
 * peerdma_scheduler_init() - makes a user's lines
 * @share: new
 */
void peerdma_scheduler_init(struct peerdma_share *share)
{
	struct peerdma_line *line;

	for (line = share->lines; line < share->lines + ARRAY_SIZE(share->lines); line++) {
		INIT_LIST_HEAD(&line->on_ready);
		INIT_LIST_HEAD(&line->files);
	}
}

/**
 * peerdma_scheduler_first() - the next job of a file
 * @file: its board's lock is held
 *
 * Return: the job, or NULL if none is queued.
 */
struct peerdma_job *peerdma_scheduler_first(struct peerdma_file *file)
{
	return list_first_entry_or_null(&file->queue, struct peerdma_job, link);
}

/**
 * peerdma_scheduler_needs() - the engines that a job needs
 * @job: prepared
 *
 * Return: a bit for each engine of the board.
 */
unsigned int peerdma_scheduler_needs(const struct peerdma_job *job)
{
	return scheduler_engines(scheduler_list(job));
}

/**
 * peerdma_scheduler_turn() - whose turn it is
 * @board: called with its lock held
 * @taken: engines that are not to be had, a bit for each
 *
 * Looks at one user for each set of engines: all files of a user whose next job needs the same
 * engines are in one line.
 *
 * Return: of the files whose next job needs an engine that is not taken, the one whose turn it is;
 * NULL if there is none.
 */
struct peerdma_file *peerdma_scheduler_turn(struct peerdma_dev *board, unsigned int taken)
{
	struct peerdma_line *line, *found = NULL;
	unsigned int list;

	for (list = 0; list < ARRAY_SIZE(board->ready); list++) {
		if (!(scheduler_engines(list) & ~taken))
			continue;
		line = list_first_entry_or_null(&board->ready[list], struct peerdma_line, on_ready);
		if (line && (!found || line->turn < found->turn))
			found = line;
	}
	return found ? scheduler_first_file(found) : NULL;
}

/**
 * peerdma_scheduler_kept_from() - whether a job is not done because another keeps its engines
 * @holder: that one: it waits for the user block, or has a ring
 * @job: prepared
 *
 * What the same file is to receive after it waits for its turn, unless that never comes.
 *
 * Return: true if the job is to be refused.
 */
bool peerdma_scheduler_kept_from(const struct peerdma_job *holder, const struct peerdma_job *job)
{
	return peerdma_scheduler_needs(job) & peerdma_scheduler_needs(holder) &&
	       (job->path != PATH_RECEIVE || job->file != holder->file || holder->frame_ring);
}

/**
 * peerdma_scheduler_next_kept() - finds a queued job that is not done because another keeps engines
 * @holder: that one. Called with the board's lock held
 *
 * Return: a job, or NULL if there is none.
 */
struct peerdma_job *peerdma_scheduler_next_kept(const struct peerdma_job *holder)
{
	struct peerdma_dev *board = holder->file->board;
	struct peerdma_line *line;
	struct peerdma_file *file;
	struct peerdma_job *job;
	unsigned int list;

	for (list = 0; list < ARRAY_SIZE(board->ready); list++) {
		if (!(scheduler_engines(list) & peerdma_scheduler_needs(holder)))
			continue;
		/* The first one is, or the second if the first is of the same file. */
		list_for_each_entry(line, &board->ready[list], on_ready)
			list_for_each_entry(file, &line->files, on_ready) {
				job = peerdma_scheduler_first(file);
				if (peerdma_scheduler_kept_from(holder, job))
					return job;
			}
	}
	return NULL;
}

/* Puts a line behind those of all other users, unless no file is in it. */
static void scheduler_pass_turn(struct peerdma_line *line, struct peerdma_dev *board,
				unsigned int list)
{
	list_del_init(&line->on_ready);
	if (list_empty(&line->files))
		return;
	line->turn = ++board->turns;
	list_add_tail(&line->on_ready, &board->ready[list]);
}

/* Puts a file behind all others of its user that are ready, unless nothing of it is queued. */
static void scheduler_line_up(struct peerdma_file *file)
{
	struct peerdma_job *job = peerdma_scheduler_first(file);
	struct peerdma_line *line;

	if (!job)
		return;
	line = scheduler_line(job);
	list_add_tail(&file->on_ready, &line->files);
	if (list_empty(&line->on_ready))
		scheduler_pass_turn(line, file->board, scheduler_list(job));
}

/**
 * peerdma_scheduler_add() - queues a job for engines
 * @job: it needs some. Called with the board's lock held
 */
void peerdma_scheduler_add(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	struct peerdma_use *use;

	job->queued = true;
	file->receiving += job->path == PATH_RECEIVE;
	for_each_use(use, job)
		list_add_tail(&use->on_surface, &use->surface->queued);
	list_add_tail(&job->link, &file->queue);
	if (peerdma_scheduler_first(file) == job)
		scheduler_line_up(file);
}

/**
 * peerdma_scheduler_remove() - takes a job out of its queue
 * @job: queued. Called with the board's lock held, in any context
 *
 * If it was the next one of its file, the user's other files come first; if it was the user's next
 * one for these engines, the other users do.
 */
void peerdma_scheduler_remove(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	struct peerdma_line *line = scheduler_line(job);
	bool next = peerdma_scheduler_first(file) == job;
	bool turn = next && scheduler_first_file(line) == file;
	struct peerdma_use *use;

	job->queued = false;
	file->receiving -= job->path == PATH_RECEIVE;
	for_each_use(use, job)
		list_del_init(&use->on_surface);
	list_del_init(&job->link);
	if (!next)
		return;
	list_del_init(&file->on_ready);
	if (turn)
		scheduler_pass_turn(line, file->board, scheduler_list(job));
	scheduler_line_up(file);
}
