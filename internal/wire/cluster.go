package wire

import (
	"strconv"

	"google.golang.org/grpc/metadata"
)

// clusterKey is the metadata by which a node tells the number of its cluster with its first answer on a stream of
// sessions.
const clusterKey = "holdfast-cluster"

// ClusterMetadata is what a node of a cluster tells.
func ClusterMetadata(number uint64) metadata.MD {
	return metadata.Pairs(clusterKey, strconv.FormatUint(number, 10))
}

// ClusterOf is the cluster of the node that has told md; "": it did not say.
func ClusterOf(md metadata.MD) string {
	if v := md.Get(clusterKey); len(v) > 0 {
		return v[0]
	}
	return ""
}
