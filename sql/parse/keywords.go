package parse

import "github.com/millrace-stream/millrace/sql/ast"

// keyword is the number of a word that the grammar uses, or of a reserved word that it does not use.
type keyword uint16

// The keywords of the grammar. kwNone is a plain name; kwOther is the first number of the reserved words that are nothing
// but reserved.
const (
	kwNone keyword = iota
	kwA
	kwAbsent
	kwAdd
	kwAfter
	kwAll
	kwAlter
	kwAlways
	kwAnalyze
	kwAnd
	kwAnti
	kwAny
	kwArray
	kwAs
	kwAsc
	kwAsymmetric
	kwAt
	kwBegin
	kwBetween
	kwBigint
	kwBinary
	kwBlob
	kwBoolean
	kwBoth
	kwBuckets
	kwBy
	kwBytes
	kwCall
	kwCascade
	kwCase
	kwCast
	kwCatalog
	kwCatalogs
	kwCeil
	kwCeiling
	kwChangelogMode
	kwChar
	kwCharacter
	kwCollate
	kwColumns
	kwComment
	kwCompile
	kwConditional
	kwConstraint
	kwConstraints
	kwContains
	kwCreate
	kwCross
	kwCube
	kwCurrent
	kwDatabase
	kwDatabases
	kwDate
	kwDay
	kwDec
	kwDecimal
	kwDefault
	kwDefine
	kwDelete
	kwDesc
	kwDescribe
	kwDescriptor
	kwDistinct
	kwDistributed
	kwDistribution
	kwDouble
	kwDrop
	kwElse
	kwEmpty
	kwEnd
	kwEnforced
	kwEquals
	kwError
	kwEscape
	kwEstimatedCost
	kwExcept
	kwExclude
	kwExcluding
	kwExecute
	kwExists
	kwExplain
	kwExtended
	kwExtract
	kwFalse
	kwFetch
	kwFilter
	kwFinal
	kwFirst
	kwFloat
	kwFloor
	kwFollowing
	kwFor
	kwFrom
	kwFull
	kwFunction
	kwFunctions
	kwGenerated
	kwGroup
	kwGrouping
	kwGroups
	kwHash
	kwHaving
	kwHour
	kwIf
	kwIgnore
	kwIlike
	kwImmediately
	kwIn
	kwIncluding
	kwInner
	kwInsert
	kwInt
	kwInteger
	kwIntersect
	kwInterval
	kwInto
	kwIs
	kwJar
	kwJars
	kwJob
	kwJobs
	kwJoin
	kwJson
	kwJsonArray
	kwJsonArrayagg
	kwJsonExecutionPlan
	kwJsonExists
	kwJsonObject
	kwJsonObjectagg
	kwJsonQuery
	kwJsonValue
	kwKey
	kwKeys
	kwLanguage
	kwLast
	kwLateral
	kwLeading
	kwLeft
	kwLike
	kwLimit
	kwLoad
	kwLocal
	kwMap
	kwMatch
	kwMatchRecognize
	kwMaterialized
	kwMeasures
	kwMember
	kwMerge
	kwMetadata
	kwMicrosecond
	kwMillisecond
	kwMinus
	kwMinute
	kwModel
	kwModule
	kwModules
	kwMonth
	kwMultiset
	kwNatural
	kwNext
	kwNo
	kwNot
	kwNull
	kwNulls
	kwNumeric
	kwObject
	kwOf
	kwOffset
	kwOn
	kwOne
	kwOnly
	kwOptions
	kwOr
	kwOrder
	kwOrdinality
	kwOuter
	kwOver
	kwOverlaps
	kwOverlay
	kwOverwrite
	kwOverwriting
	kwPartition
	kwPartitioned
	kwPartitions
	kwPast
	kwPattern
	kwPer
	kwPeriod
	kwPermute
	kwPivot
	kwPlacing
	kwPlan
	kwPlanAdvice
	kwPosition
	kwPrecedes
	kwPreceding
	kwPrecision
	kwPrimary
	kwQualify
	kwQuarter
	kwRange
	kwRaw
	kwReal
	kwRecursive
	kwRemove
	kwReplace
	kwReset
	kwRespect
	kwReturning
	kwRight
	kwRestrict
	kwRlike
	kwRollup
	kwRow
	kwRows
	kwRunning
	kwScalar
	kwSecond
	kwSelect
	kwSemi
	kwSet
	kwSets
	kwShow
	kwSimilar
	kwSkip
	kwSmallint
	kwSome
	kwStatement
	kwStop
	kwStream
	kwString
	kwSubmultiset
	kwSubset
	kwSubstring
	kwSucceeds
	kwSymmetric
	kwSystem
	kwSystemTime
	kwTable
	kwTables
	kwTablesample
	kwTemporary
	kwThen
	kwTies
	kwTime
	kwTimestamp
	kwTimestampadd
	kwTimestampdiff
	kwTimestampLtz
	kwTinyint
	kwTo
	kwTrailing
	kwTranslate
	kwTrim
	kwTrue
	kwTruncate
	kwTryCast
	kwUescape
	kwUnbounded
	kwUnconditional
	kwUnion
	kwUnique
	kwUnknown
	kwUnload
	kwUnnest
	kwUnpivot
	kwUpdate
	kwUpsert
	kwUse
	kwUser
	kwUsing
	kwValue
	kwValues
	kwVarbinary
	kwVarchar
	kwVariant
	kwVarying
	kwView
	kwViews
	kwVirtual
	kwWatermark
	kwWatermarks
	kwWeek
	kwWhen
	kwWhere
	kwWindow
	kwWith
	kwWithin
	kwWithout
	kwWrapper
	kwYear
	kwZone
	kwOther
)

// words are the texts of the keywords, in the order of their numbers.
var words = [...]string{
	kwNone:              "",
	kwA:                 "A",
	kwAbsent:            "ABSENT",
	kwAdd:               "ADD",
	kwAfter:             "AFTER",
	kwAll:               "ALL",
	kwAlter:             "ALTER",
	kwAlways:            "ALWAYS",
	kwAnalyze:           "ANALYZE",
	kwAnd:               "AND",
	kwAnti:              "ANTI",
	kwAny:               "ANY",
	kwArray:             "ARRAY",
	kwAs:                "AS",
	kwAsc:               "ASC",
	kwAsymmetric:        "ASYMMETRIC",
	kwAt:                "AT",
	kwBegin:             "BEGIN",
	kwBetween:           "BETWEEN",
	kwBigint:            "BIGINT",
	kwBinary:            "BINARY",
	kwBlob:              "BLOB",
	kwBoolean:           "BOOLEAN",
	kwBoth:              "BOTH",
	kwBuckets:           "BUCKETS",
	kwBy:                "BY",
	kwBytes:             "BYTES",
	kwCall:              "CALL",
	kwCascade:           "CASCADE",
	kwCase:              "CASE",
	kwCast:              "CAST",
	kwCatalog:           "CATALOG",
	kwCatalogs:          "CATALOGS",
	kwCeil:              "CEIL",
	kwCeiling:           "CEILING",
	kwChangelogMode:     "CHANGELOG_MODE",
	kwChar:              "CHAR",
	kwCharacter:         "CHARACTER",
	kwCollate:           "COLLATE",
	kwColumns:           "COLUMNS",
	kwComment:           "COMMENT",
	kwCompile:           "COMPILE",
	kwConditional:       "CONDITIONAL",
	kwConstraint:        "CONSTRAINT",
	kwConstraints:       "CONSTRAINTS",
	kwContains:          "CONTAINS",
	kwCreate:            "CREATE",
	kwCross:             "CROSS",
	kwCube:              "CUBE",
	kwCurrent:           "CURRENT",
	kwDatabase:          "DATABASE",
	kwDatabases:         "DATABASES",
	kwDate:              "DATE",
	kwDay:               "DAY",
	kwDec:               "DEC",
	kwDecimal:           "DECIMAL",
	kwDefault:           "DEFAULT",
	kwDefine:            "DEFINE",
	kwDelete:            "DELETE",
	kwDesc:              "DESC",
	kwDescribe:          "DESCRIBE",
	kwDescriptor:        "DESCRIPTOR",
	kwDistinct:          "DISTINCT",
	kwDistributed:       "DISTRIBUTED",
	kwDistribution:      "DISTRIBUTION",
	kwDouble:            "DOUBLE",
	kwDrop:              "DROP",
	kwElse:              "ELSE",
	kwEmpty:             "EMPTY",
	kwEnd:               "END",
	kwEnforced:          "ENFORCED",
	kwEquals:            "EQUALS",
	kwError:             "ERROR",
	kwEscape:            "ESCAPE",
	kwEstimatedCost:     "ESTIMATED_COST",
	kwExcept:            "EXCEPT",
	kwExclude:           "EXCLUDE",
	kwExcluding:         "EXCLUDING",
	kwExecute:           "EXECUTE",
	kwExists:            "EXISTS",
	kwExplain:           "EXPLAIN",
	kwExtended:          "EXTENDED",
	kwExtract:           "EXTRACT",
	kwFalse:             "FALSE",
	kwFetch:             "FETCH",
	kwFilter:            "FILTER",
	kwFinal:             "FINAL",
	kwFirst:             "FIRST",
	kwFloat:             "FLOAT",
	kwFloor:             "FLOOR",
	kwFollowing:         "FOLLOWING",
	kwFor:               "FOR",
	kwFrom:              "FROM",
	kwFull:              "FULL",
	kwFunction:          "FUNCTION",
	kwFunctions:         "FUNCTIONS",
	kwGenerated:         "GENERATED",
	kwGroup:             "GROUP",
	kwGrouping:          "GROUPING",
	kwGroups:            "GROUPS",
	kwHash:              "HASH",
	kwHaving:            "HAVING",
	kwHour:              "HOUR",
	kwIf:                "IF",
	kwIgnore:            "IGNORE",
	kwIlike:             "ILIKE",
	kwImmediately:       "IMMEDIATELY",
	kwIn:                "IN",
	kwIncluding:         "INCLUDING",
	kwInner:             "INNER",
	kwInsert:            "INSERT",
	kwInt:               "INT",
	kwInteger:           "INTEGER",
	kwIntersect:         "INTERSECT",
	kwInterval:          "INTERVAL",
	kwInto:              "INTO",
	kwIs:                "IS",
	kwJar:               "JAR",
	kwJars:              "JARS",
	kwJob:               "JOB",
	kwJobs:              "JOBS",
	kwJoin:              "JOIN",
	kwJson:              "JSON",
	kwJsonArray:         "JSON_ARRAY",
	kwJsonArrayagg:      "JSON_ARRAYAGG",
	kwJsonExecutionPlan: "JSON_EXECUTION_PLAN",
	kwJsonExists:        "JSON_EXISTS",
	kwJsonObject:        "JSON_OBJECT",
	kwJsonObjectagg:     "JSON_OBJECTAGG",
	kwJsonQuery:         "JSON_QUERY",
	kwJsonValue:         "JSON_VALUE",
	kwKey:               "KEY",
	kwKeys:              "KEYS",
	kwLanguage:          "LANGUAGE",
	kwLast:              "LAST",
	kwLateral:           "LATERAL",
	kwLeading:           "LEADING",
	kwLeft:              "LEFT",
	kwLike:              "LIKE",
	kwLimit:             "LIMIT",
	kwLoad:              "LOAD",
	kwLocal:             "LOCAL",
	kwMap:               "MAP",
	kwMatch:             "MATCH",
	kwMatchRecognize:    "MATCH_RECOGNIZE",
	kwMaterialized:      "MATERIALIZED",
	kwMeasures:          "MEASURES",
	kwMember:            "MEMBER",
	kwMerge:             "MERGE",
	kwMetadata:          "METADATA",
	kwMicrosecond:       "MICROSECOND",
	kwMillisecond:       "MILLISECOND",
	kwMinus:             "MINUS",
	kwMinute:            "MINUTE",
	kwModel:             "MODEL",
	kwModule:            "MODULE",
	kwModules:           "MODULES",
	kwMonth:             "MONTH",
	kwMultiset:          "MULTISET",
	kwNatural:           "NATURAL",
	kwNext:              "NEXT",
	kwNo:                "NO",
	kwNot:               "NOT",
	kwNull:              "NULL",
	kwNulls:             "NULLS",
	kwNumeric:           "NUMERIC",
	kwObject:            "OBJECT",
	kwOf:                "OF",
	kwOffset:            "OFFSET",
	kwOn:                "ON",
	kwOne:               "ONE",
	kwOnly:              "ONLY",
	kwOptions:           "OPTIONS",
	kwOr:                "OR",
	kwOrder:             "ORDER",
	kwOrdinality:        "ORDINALITY",
	kwOuter:             "OUTER",
	kwOver:              "OVER",
	kwOverlaps:          "OVERLAPS",
	kwOverlay:           "OVERLAY",
	kwOverwrite:         "OVERWRITE",
	kwOverwriting:       "OVERWRITING",
	kwPartition:         "PARTITION",
	kwPartitioned:       "PARTITIONED",
	kwPartitions:        "PARTITIONS",
	kwPast:              "PAST",
	kwPattern:           "PATTERN",
	kwPer:               "PER",
	kwPeriod:            "PERIOD",
	kwPermute:           "PERMUTE",
	kwPivot:             "PIVOT",
	kwPlacing:           "PLACING",
	kwPlan:              "PLAN",
	kwPlanAdvice:        "PLAN_ADVICE",
	kwPosition:          "POSITION",
	kwPrecedes:          "PRECEDES",
	kwPreceding:         "PRECEDING",
	kwPrecision:         "PRECISION",
	kwPrimary:           "PRIMARY",
	kwQualify:           "QUALIFY",
	kwQuarter:           "QUARTER",
	kwRange:             "RANGE",
	kwRaw:               "RAW",
	kwReal:              "REAL",
	kwRecursive:         "RECURSIVE",
	kwRemove:            "REMOVE",
	kwReplace:           "REPLACE",
	kwReset:             "RESET",
	kwRespect:           "RESPECT",
	kwReturning:         "RETURNING",
	kwRight:             "RIGHT",
	kwRestrict:          "RESTRICT",
	kwRlike:             "RLIKE",
	kwRollup:            "ROLLUP",
	kwRow:               "ROW",
	kwRows:              "ROWS",
	kwRunning:           "RUNNING",
	kwScalar:            "SCALAR",
	kwSecond:            "SECOND",
	kwSelect:            "SELECT",
	kwSemi:              "SEMI",
	kwSet:               "SET",
	kwSets:              "SETS",
	kwShow:              "SHOW",
	kwSimilar:           "SIMILAR",
	kwSkip:              "SKIP",
	kwSmallint:          "SMALLINT",
	kwSome:              "SOME",
	kwStatement:         "STATEMENT",
	kwStop:              "STOP",
	kwStream:            "STREAM",
	kwString:            "STRING",
	kwSubmultiset:       "SUBMULTISET",
	kwSubset:            "SUBSET",
	kwSubstring:         "SUBSTRING",
	kwSucceeds:          "SUCCEEDS",
	kwSymmetric:         "SYMMETRIC",
	kwSystem:            "SYSTEM",
	kwSystemTime:        "SYSTEM_TIME",
	kwTable:             "TABLE",
	kwTables:            "TABLES",
	kwTablesample:       "TABLESAMPLE",
	kwTemporary:         "TEMPORARY",
	kwThen:              "THEN",
	kwTies:              "TIES",
	kwTime:              "TIME",
	kwTimestamp:         "TIMESTAMP",
	kwTimestampadd:      "TIMESTAMPADD",
	kwTimestampdiff:     "TIMESTAMPDIFF",
	kwTimestampLtz:      "TIMESTAMP_LTZ",
	kwTinyint:           "TINYINT",
	kwTo:                "TO",
	kwTrailing:          "TRAILING",
	kwTranslate:         "TRANSLATE",
	kwTrim:              "TRIM",
	kwTrue:              "TRUE",
	kwTruncate:          "TRUNCATE",
	kwTryCast:           "TRY_CAST",
	kwUescape:           "UESCAPE",
	kwUnbounded:         "UNBOUNDED",
	kwUnconditional:     "UNCONDITIONAL",
	kwUnion:             "UNION",
	kwUnique:            "UNIQUE",
	kwUnknown:           "UNKNOWN",
	kwUnload:            "UNLOAD",
	kwUnnest:            "UNNEST",
	kwUnpivot:           "UNPIVOT",
	kwUpdate:            "UPDATE",
	kwUpsert:            "UPSERT",
	kwUse:               "USE",
	kwUser:              "USER",
	kwUsing:             "USING",
	kwValue:             "VALUE",
	kwValues:            "VALUES",
	kwVarbinary:         "VARBINARY",
	kwVarchar:           "VARCHAR",
	kwVariant:           "VARIANT",
	kwVarying:           "VARYING",
	kwView:              "VIEW",
	kwViews:             "VIEWS",
	kwVirtual:           "VIRTUAL",
	kwWatermark:         "WATERMARK",
	kwWatermarks:        "WATERMARKS",
	kwWeek:              "WEEK",
	kwWhen:              "WHEN",
	kwWhere:             "WHERE",
	kwWindow:            "WINDOW",
	kwWith:              "WITH",
	kwWithin:            "WITHIN",
	kwWithout:           "WITHOUT",
	kwWrapper:           "WRAPPER",
	kwYear:              "YEAR",
	kwZone:              "ZONE",
}

// keywords is the table of all words with a meaning.
var keywords = makeTable()

type table struct {
	byWord map[string]keyword
	texts  []string
	flags  []flags
}

type flags uint8

const (
	reserved flags = 1 << iota
	callable
)

func makeTable() *table {
	t := &table{byWord: map[string]keyword{}}
	for i, w := range words {
		t.texts = append(t.texts, w)
		if i > 0 {
			t.byWord[w] = keyword(i)
		}
	}
	t.flags = make([]flags, len(t.texts))
	mark := func(w string, f flags) {
		k, ok := t.byWord[w]
		if !ok {
			k = keyword(len(t.texts))
			t.byWord[w] = k
			t.texts = append(t.texts, w)
			t.flags = append(t.flags, 0)
		}
		t.flags[k] |= f
	}
	t.texts = append(t.texts, "") // kwOther itself is no word
	t.flags = append(t.flags, 0)
	for _, w := range ast.ReservedWords() {
		mark(w, reserved)
	}
	for _, w := range ast.CallableWords() {
		mark(w, callable)
	}
	return t
}

// longestWord is more than the length of every keyword.
const longestWord = 32

// lookup finds a word in any case.
func lookup(word string) keyword {
	if len(word) >= longestWord {
		return kwNone
	}
	var upper [longestWord]byte
	for i := range len(word) {
		c := word[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	return keywords.byWord[string(upper[:len(word)])]
}

func (k keyword) String() string { return keywords.texts[k] }

func (k keyword) reserved() bool { return keywords.flags[k]&reserved != 0 }

func (k keyword) callable() bool { return keywords.flags[k]&callable != 0 }
