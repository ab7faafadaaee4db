package pghold

import "time"

// giveUp gives back what was granted to a caller that has gone, but not before a holder that ended
// with the lock has had graceAfterCrash to notice: the next grant does not wait for that any more. false: the server
// has not confirmed it.
func (c *client) giveUp(cl *rowClaim) (heard bool) {
	if cl.afterCrash {
		select {
		case <-time.After(time.Until(cl.since.Add(c.graceAfterCrash))):
		case <-c.life.Done():
		}
	}
	c.giveBack(cl)
	<-cl.released
	return cl.result == nil
}

// graceAfterCrash is how long a grant is kept from its caller if the holder before has
// not given the name back. The server frees what a connection had before its
// program can know that the connection has ended.
const graceAfterCrash = 50 * time.Millisecond

// isGranted also takes "inherited" for "granted", and notes which it was.
func (cl *rowClaim) isGranted(state *string) bool {
	if *state == "inherited" {
		*state, cl.afterCrash, cl.since = "granted", true, time.Now()
	}
	return *state == "granted"
}
