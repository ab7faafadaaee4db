package gateway

import (
	"context"
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
)

type operatorKey struct{}

// ByOperator is ctx of a call by an operator: its connection says so.
func ByOperator(ctx context.Context) context.Context {
	return context.WithValue(ctx, operatorKey{}, true)
}

// onlyOperators refuses a call of everybody else, until there are rights. The node that
// is asked judges its caller by the connection, and asks the leader over the
// connections of the nodes, so that no caller can claim that a node has passed it on.
func onlyOperators(ctx context.Context) error {
	if ctx.Value(operatorKey{}) != nil {
		return nil
	}
	return driver.Errorf("change members", "", fs.ErrPermission, "members are changed, checked and unfrozen only from the machine of a node, or over TLS with a certificate by the signer of the nodes' certificates; nothing was changed: "+
		"run the command on the machine of one of the nodes, or name such a certificate (holdfasts://…?holdfast_tls_cert=…&holdfast_tls_key=…; the node needs --tls-cert and --peer-ca)")
}
