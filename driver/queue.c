// SPDX-License-Identifier: GPL-2.0
/*
 * Queues: each file has one. Users take turns, and the files of a user take those of that user: who
 * opens many files has no more of the board's time than who opens one.
 *
 * What is done here with the board's lock held takes the same time however many users, files and
 * jobs wait.
 */
#include "engine.h"

/* Sets of lanes of a channel. */
#define SETS		(1 << PEERDMA_LANES)

/* The lanes that the first jobs of the files in a list of ready ones need, a bit for each. */
static unsigned int queue_lanes(unsigned int list)
{
	return (list % SETS) << (list / SETS * PEERDMA_LANES);
}

/* The list for those whose first job is this one. */
static unsigned int queue_list(const struct peerdma_job *job)
{
	return job->channel * SETS + (job->legs[PEERDMA_H2C].used << PEERDMA_H2C |
				      job->legs[PEERDMA_C2H].used << PEERDMA_C2H);
}

/* Where a file is while this is its first job. */
static struct peerdma_line *queue_line(const struct peerdma_job *job)
{
	return &job->file->share->lines[queue_list(job)];
}

static struct peerdma_file *queue_first_file(struct peerdma_line *line)
{
	return list_first_entry(&line->files, struct peerdma_file, on_ready);
}

/**
 * peerdma_queue_init() - makes a user's lines
 * @share: new
 */
void peerdma_queue_init(struct peerdma_share *share)
{
	struct peerdma_line *line;

	for (line = share->lines; line < share->lines + ARRAY_SIZE(share->lines); line++) {
		INIT_LIST_HEAD(&line->on_ready);
		INIT_LIST_HEAD(&line->files);
	}
}

/**
 * peerdma_queue_first() - the next job of a file
 * @file: its board's lock is held
 *
 * Return: the job, or NULL if none is queued.
 */
struct peerdma_job *peerdma_queue_first(struct peerdma_file *file)
{
	return list_first_entry_or_null(&file->queue, struct peerdma_job, link);
}

/**
 * peerdma_queue_needs() - the lanes that a job needs
 * @job: prepared
 *
 * Return: a bit for each lane of the board.
 */
unsigned int peerdma_queue_needs(const struct peerdma_job *job)
{
	return queue_lanes(queue_list(job));
}

/**
 * peerdma_queue_turn() - whose turn it is
 * @board: called with its lock held
 * @taken: lanes that are not to be had, a bit for each
 *
 * Looks at one user for each set of lanes: all files of a user whose next job needs the same lanes
 * are in one line.
 *
 * Return: of the files whose next job needs a lane that is not taken, the one whose turn it is;
 * NULL if there is none.
 */
struct peerdma_file *peerdma_queue_turn(struct peerdma_dev *board, unsigned int taken)
{
	struct peerdma_line *line, *found = NULL;
	unsigned int list;

	for (list = 0; list < ARRAY_SIZE(board->ready); list++) {
		if (!(queue_lanes(list) & ~taken))
			continue;
		line = list_first_entry_or_null(&board->ready[list], struct peerdma_line, on_ready);
		if (line && (!found || line->turn < found->turn))
			found = line;
	}
	return found ? queue_first_file(found) : NULL;
}

/**
 * peerdma_queue_kept_from() - whether a job is not done because another keeps lanes that it needs
 * @holder: that one: it waits for the user block, or has a ring
 * @job: prepared
 *
 * What the same file is to receive after it waits for its turn, unless that never comes.
 *
 * Return: true if the job is to be refused.
 */
bool peerdma_queue_kept_from(const struct peerdma_job *holder, const struct peerdma_job *job)
{
	return peerdma_queue_needs(job) & peerdma_queue_needs(holder) &&
	       (job->path != PATH_RECEIVE || job->file != holder->file || holder->ring);
}

/**
 * peerdma_queue_next_kept() - finds a queued job that is not done because another keeps lanes
 * @holder: that one. Called with the board's lock held
 *
 * Return: a job, or NULL if there is none.
 */
struct peerdma_job *peerdma_queue_next_kept(const struct peerdma_job *holder)
{
	struct peerdma_dev *board = holder->file->board;
	struct peerdma_line *line;
	struct peerdma_file *file;
	unsigned int list;

	for (list = 0; list < ARRAY_SIZE(board->ready); list++) {
		if (!(queue_lanes(list) & peerdma_queue_needs(holder)))
			continue;
		/* The first one is, or the second if the first is of the same file. */
		list_for_each_entry(line, &board->ready[list], on_ready)
			list_for_each_entry(file, &line->files, on_ready)
				if (peerdma_queue_kept_from(holder, peerdma_queue_first(file)))
					return peerdma_queue_first(file);
	}
	return NULL;
}

/* Puts a line behind those of all other users, unless no file is in it. */
static void queue_pass_turn(struct peerdma_line *line, struct peerdma_dev *board, unsigned int list)
{
	list_del_init(&line->on_ready);
	if (list_empty(&line->files))
		return;
	line->turn = ++board->turns;
	list_add_tail(&line->on_ready, &board->ready[list]);
}

/* Puts a file behind all others of its user that are ready, unless nothing of it is queued. */
static void queue_line_up(struct peerdma_file *file)
{
	struct peerdma_job *job = peerdma_queue_first(file);
	struct peerdma_line *line;

	if (!job)
		return;
	line = queue_line(job);
	list_add_tail(&file->on_ready, &line->files);
	if (list_empty(&line->on_ready))
		queue_pass_turn(line, file->board, queue_list(job));
}

/**
 * peerdma_queue_add() - queues a job for lanes
 * @job: it needs some. Called with the board's lock held
 */
void peerdma_queue_add(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	struct peerdma_use *use;

	job->queued = true;
	file->receiving += job->path == PATH_RECEIVE;
	for_each_use(use, job)
		list_add_tail(&use->on_surface, &use->surface->queued);
	list_add_tail(&job->link, &file->queue);
	if (peerdma_queue_first(file) == job)
		queue_line_up(file);
}

/**
 * peerdma_queue_remove() - takes a job out of its queue
 * @job: queued. Called with the board's lock held, in any context
 *
 * If it was the next one of its file, the user's other files come first; if it was the user's next
 * one for these lanes, the other users do.
 */
void peerdma_queue_remove(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	struct peerdma_line *line = queue_line(job);
	bool next = peerdma_queue_first(file) == job;
	bool turn = next && queue_first_file(line) == file;
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
		queue_pass_turn(line, file->board, queue_list(job));
	queue_line_up(file);
}
