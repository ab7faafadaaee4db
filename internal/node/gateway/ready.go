package gateway

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// Unready is why calls that come to a node which stands so are not answered; "": they are. What a node
// has applied before the leader's time may have the leader at an address that it has left.
func Unready(st *replica.Status) string {
	switch {
	case st.Serving:
		return ""
	case st.Leader == 0 || st.Leader == st.ID:
		return "there is no leader"
	case !st.Current:
		return fmt.Sprintf("this node has yet to catch up with node %d, which leads", st.Leader)
	case st.Members.Address(st.Leader) == "":
		return fmt.Sprintf("the group does not know where clients find node %d, which leads: holdfast member update %[1]d PEER CLIENT", st.Leader)
	}
	return ""
}
