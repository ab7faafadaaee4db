package memhold

import (
	"context"
	"io/fs"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// minTTL is the shortest session.
const minTTL = time.Second

func init() { driver.Register("mem", openURL) }

// Open returns a Space with a memory of its own. It panics if an option is
// wrong, as [holdfast.New] would tell: that is a mistake in the program.
func Open(opts ...holdfast.Option) *holdfast.Space {
	s, err := holdfast.New(New(), opts...)
	if err != nil {
		panic(err)
	}
	return s
}

// New returns a driver with a memory of its own, for [holdfast.New].
func New() driver.Driver { return newStore("").newClient() }

// stores are the memories that have a name.
var stores = struct {
	sync.Mutex
	byName map[string]*store
}{byName: map[string]*store{}}

// openURL opens mem: or mem://name.
func openURL(_ context.Context, u *url.URL) (driver.Driver, error) {
	name := u.Host + u.Path
	if u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, driver.Errorf("open", u.Redacted(), fs.ErrInvalid, "use mem: for a memory of its own, or mem://name for a shared one")
	}
	if name == "" {
		return New(), nil
	}
	stores.Lock()
	defer stores.Unlock()
	st := stores.byName[name]
	if st == nil {
		st = newStore(name)
		stores.byName[name] = st
	}
	return st.newClient(), nil
}

// Left is the end of one client of st; the last one ends the memory. Both locks
// are taken, so that nobody opens a memory that is ending.
func (st *store) Left() {
	stores.Lock()
	defer stores.Unlock()
	st.g.Lock()
	defer st.g.Unlock()
	if st.clients--; st.clients > 0 {
		return
	}
	st.alarm.Stop()
	if stores.byName[st.name] == st {
		delete(stores.byName, st.name)
	}
}
