package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
)

// deletePage is how many keys DeleteRange deletes with one call: few enough that
// everybody else's calls are not held up.
const deletePage = 1000

// DeleteRange deletes all keys that begin with prefix, "" being all, and tells how
// many. It deletes page by page, each page at a revision of its own, so others can
// meanwhile see some of the keys gone and some not; to delete up to 10,000 keys
// (2,500 on Redis) all at one revision use [DeleteRangeOp] in a [Txn]. A key that is put meanwhile may be
// deleted too. After an error, deleted keys are gone and the others are not: call
// it again to go on.
func (k *KV) DeleteRange(ctx context.Context, prefix string) (deleted int64, err error) {
	page := DeleteRangeOp(prefix)
	page.op.Limit = deletePage
	for {
		res, err := k.one(ctx, "delete range", prefix, nil, page)
		if err != nil {
			return deleted, partly(deleted, err)
		}
		deleted += res.Results[0].Count
		if !res.Results[0].More {
			return deleted, nil
		}
	}
}

// partly is err of a call that did a part before: it cannot say that nothing was
// done.
func partly(done int64, err error) error {
	e, ok := errors.AsType[*Error](err)
	if done == 0 || !ok || e.Outcome != driver.NotDone {
		return err
	}
	some := *e
	some.Outcome = driver.Unknown
	return &some
}
