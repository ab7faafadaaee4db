package replica

// InMemory is how many entries of the log are in memory.
func (n *Node) InMemory() uint64 {
	first, _ := n.log.FirstIndex()
	last, _ := n.log.LastIndex()
	return last + 1 - first
}
