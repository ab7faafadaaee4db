package disk

import "github.com/holdfast-io/holdfast/internal/node/replica"

// Job is something to do with the disk: writes of the node, or anything else.
type Job struct {
	Writes []replica.Write
	Run    func(*Disk) error // nil: Writes
	Then   func(error)       // for Run: told how it went, on the goroutine that did it
}

// Do does the job.
func (j *Job) Do(d *Disk) error {
	if j.Run != nil {
		return j.Run(d)
	}
	return d.Write(j.Writes)
}

// Queue is what waits for the disk, in order. Writes that wait together are one
// job, so that they share a sync.
type Queue struct{ jobs []Job }

// Len is how many jobs wait.
func (q *Queue) Len() int { return len(q.jobs) }

// Add takes another job.
func (q *Queue) Add(j Job) {
	if n := len(q.jobs); n > 0 && j.Run == nil && q.jobs[n-1].Run == nil {
		q.jobs[n-1].Writes = append(q.jobs[n-1].Writes, j.Writes...)
		return
	}
	q.jobs = append(q.jobs, j)
}

// Next takes the first job out of the queue; there must be one.
func (q *Queue) Next() Job {
	j := q.jobs[0]
	q.jobs[0] = Job{} // what it wrote may be large
	q.jobs = q.jobs[1:]
	return j
}
