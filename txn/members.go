package txn

import "context"

// Members is how many members the app's group has, as its coordinator knows: one that was killed counts until its
// session is over.
func (c *Cluster) Members(ctx context.Context) (int, error) {
	_, members, err := c.GroupState(ctx)
	return len(members), err
}
