package statestore_test

import (
	"fmt"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// An account was kept in cents of one currency, and is kept as an amount with a currency now.
type (
	accountBefore struct{ Cents int64 } // as it was: kept in the program for the values that are stored
	account       struct {
		Amount   float64
		Currency string
	}
)

// Migrate reads the values of an earlier version of the program. In a topology the migration is given where the state is
// declared: processor.Value[account](ctx, "account", processor.Migrations(migration)), or processor.MigrateState(migration) as an option of an
// aggregation.
func ExampleMigrate() {
	migration := statestore.Migrate(func(a accountBefore) (account, error) {
		return account{Amount: float64(a.Cents) / 100, Currency: "EUR"}, nil
	})

	store := memstore.New()
	keys, _ := statestore.KeyCodecOf[string]()
	spec := statestore.Spec{Name: "accounts/value", ID: statestore.StoreID("accounts/value"), Kind: statestore.KindTable}

	before, _ := statestore.CodecOf[accountBefore]()
	state := statestore.NewState(store, statestore.StateOptions{})
	old, _ := statestore.NewTable(state, spec, keys, before)
	old.Set(0, "eva", accountBefore{1250})
	state.Seal(1)
	state.Committed()
	_ = state.WriteBehind(statestore.Meta{Epoch: 1})

	now, _ := statestore.CodecOf[account]()
	migrating, err := statestore.Migrating(now, migration)
	if err != nil {
		fmt.Println(err)
		return
	}
	state = statestore.NewState(store, statestore.StateOptions{})
	table, _ := statestore.NewTable(state, spec, keys, migrating)
	fmt.Println(*table.Get(0, "eva"))
	// Output: {12.5 EUR}
}
