package fn

import (
	"crypto/md5"  //nolint:gosec // MD5 and SHA1 are functions of SQL, not used for security here
	"crypto/sha1" //nolint:gosec // see above
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"

	"github.com/millrace-stream/millrace/row"
)

func hashFunc(name string, length int, h func() hash.Hash, example string) *Func {
	return &Func{
		Name: name, Group: "hash", Syntax: name + "(string)", Doc: "The " + name + " hash of the text in hexadecimal digits.",
		Resolve: sigs(of(strictly(row.Char(length)), wantStringy)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			sum := h()
			var buf [64]byte
			return BytesCode(t, lift1(args[0].Bytes, func(b []byte) []byte {
				sum.Reset()
				sum.Write(b)
				return env.Arena.Keep(hex.AppendEncode(env.Arena.Begin(), sum.Sum(buf[:0])))
			})), nil
		},
		Examples: []Example{{name + "('a')", row.Char(length).NotNull().String(), example}},
	}
}

var hashFuncs = []*Func{
	hashFunc("MD5", 32, md5.New, "0cc175b9c0f1b6a831c399e269772661"),
	hashFunc("SHA1", 40, sha1.New, "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"),
	hashFunc("SHA224", 56, sha256.New224, "abd37534c7d9a2efb9465de931cd7055ffdb8879563ae98078d6d6d5"),
	hashFunc("SHA256", 64, sha256.New, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
	hashFunc("SHA384", 96, sha512.New384, "54a59b9f22b0b80880d8427e548b7c23abd873486e1f035dce9cd697e85175033caa88e6d57bc35efae0b5afd3145f31"),
	hashFunc("SHA512", 128, sha512.New, "1f40fc92da241694750979ee6cf582f2d5d7d28e18335de05abc54d0560e0f5302860c652bf08d560252aa5e74210546f369fbbbce8c12cfc7957b2652fe9a75"),
	{
		Name: "SHA2", Group: "hash", Syntax: "SHA2(string, bits)", Doc: "The SHA-2 hash of 224, 256, 384 or 512 bits of the text in hexadecimal digits.",
		Resolve: sigs(of(strictly(row.VarChar(128)), wantStringy, wantInt)), Fails: true,
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			return BytesCode(t, lift2(args[0].Bytes, args[1].Int, func(b []byte, bits int64) []byte {
				var sum []byte
				switch bits {
				case 224:
					s := sha256.Sum224(b)
					sum = s[:]
				case 256:
					s := sha256.Sum256(b)
					sum = s[:]
				case 384:
					s := sha512.Sum384(b)
					sum = s[:]
				case 512:
					s := sha512.Sum512(b)
					sum = s[:]
				default:
					at.failf("SHA2: %d bits; it has 224, 256, 384 or 512", bits)
				}
				return env.Arena.Keep(hex.AppendEncode(env.Arena.Begin(), sum))
			})), nil
		},
		Examples: []Example{{"SHA2('a', 256)", "VARCHAR(128) NOT NULL", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}},
	},
}
