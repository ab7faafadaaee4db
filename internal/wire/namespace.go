package wire

import "google.golang.org/grpc/metadata"

// The metadata that says which namespace a call is about. gRPC carries only printable ASCII
// in the first; the second is for all other names, and beside it the first has a
// name that every server refuses, so that one that does not know the second does not
// answer about the default namespace.
const (
	namespaceKey    = "holdfast-namespace"
	namespaceBinary = "holdfast-namespace-bin"
	namespaceHidden = "holdfast.bin"
)

// NamespaceMetadata is the metadata of a namespace, names and values in turn; nothing for the
// default, "".
func NamespaceMetadata(namespace string) []string {
	switch {
	case namespace == "":
		return nil
	case printable(namespace):
		return []string{namespaceKey, namespace}
	}
	return []string{namespaceKey, namespaceHidden, namespaceBinary, namespace}
}

// NamespacesOf are the namespaces that metadata names, one as a rule; none: the default. The second counts only
// beside the name that stands for it, so that a proxy which looks at the first is not passed by.
func NamespacesOf(md metadata.MD) []string {
	names, binary := md.Get(namespaceKey), md.Get(namespaceBinary)
	if len(names) == 1 && names[0] == namespaceHidden && len(binary) > 0 {
		return binary
	}
	return names
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
