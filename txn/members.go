package txn

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members is how many members the app's group has, as its coordinator knows: one that was killed counts until its
// session is over.
func (c *Cluster) Members(ctx context.Context) (int, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{c.opts.AppID}
	resp, err := c.Request(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("describe group %s: %w", c.opts.AppID, err)
	}
	for _, g := range resp.(*kmsg.DescribeGroupsResponse).Groups {
		if g.ErrorCode == kerr.GroupIDNotFound.Code { // from version 6 on, instead of an empty group
			return 0, nil
		}
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return 0, fmt.Errorf("describe group %s: %w", c.opts.AppID, err)
		}
		return len(g.Members), nil
	}
	return 0, fmt.Errorf("describe group %s: the coordinator did not answer for it", c.opts.AppID)
}
