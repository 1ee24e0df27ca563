//! What does a leaf mean, and what does it store?
//!
//! ```text
//! INT32 (INTEGER(8,false))                    uint8
//! INT64, `duration[s]` in ARROW:schema        int64, taken for a duration
//! ```
//!
//! # Invariants
//! Whether leaves go together is decided by the core, from their types and meanings. What
//! annotations add to an Arrow type (JSON, ENUM, UUID, INT96 and so on) must be equal: text with an
//! annotation taken away, or bytes declared to be text, would not be what was written. So STRING
//! and bare BYTE_ARRAY conflict as well: bare bytes need not be valid UTF-8.
//!
//! # Not here
//! The leaf that stores the values of several (`cast`); names, repetition and nesting (`summary`,
//! `tree`).

use arrow_schema::{DataType, TimeUnit as ArrowUnit};
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::schema::types::Type;
use plait_core::key::{KeyType, ShownAs};
use plait_core::type_text;

/// What an annotation says beyond the Arrow type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tag {
    Plain,
    Time { utc: bool },
    Enum,
    Json,
    Bson,
    Uuid,
    Interval,
    Int96,
    Other(LogicalType),
}

/// What the values of a leaf are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Meaning {
    pub(super) ty: DataType,
    pub(super) tag: Tag,
}

/// The parts of a primitive node that its name, repetition and id do not touch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeafType {
    pub(super) physical: PhysicalType,
    pub(super) length: i32,
    pub(super) precision: i32,
    pub(super) scale: i32,
    pub(super) logical: Option<LogicalType>,
    pub(super) converted: ConvertedType,
}

impl LeafType {
    /// `None` for a group.
    pub(super) fn of(node: &Type) -> Option<Self> {
        let Type::PrimitiveType { basic_info, physical_type, type_length, scale, precision } = node
        else {
            return None;
        };
        Some(Self {
            physical: *physical_type,
            length: if *physical_type == PhysicalType::FIXED_LEN_BYTE_ARRAY {
                *type_length
            } else {
                -1
            },
            precision: *precision,
            scale: *scale,
            logical: basic_info.logical_type_ref().cloned(),
            converted: basic_info.converted_type(),
        })
    }

    pub(super) fn bare(physical: PhysicalType) -> Self {
        let converted = ConvertedType::NONE;
        Self { physical, length: -1, precision: -1, scale: -1, logical: None, converted }
    }

    pub(super) fn integer(bits: i8) -> Self {
        let logical = Some(LogicalType::integer(bits, true));
        Self { converted: logical.clone().into(), logical, ..Self::bare(PhysicalType::INT32) }
    }

    /// A node of this type.
    pub(super) fn node(
        &self,
        name: &str,
        repetition: Repetition,
        id: Option<i32>,
    ) -> parquet::errors::Result<Type> {
        Type::primitive_type_builder(name, self.physical)
            .with_repetition(repetition)
            .with_logical_type(self.logical.clone())
            .with_converted_type(self.converted)
            .with_length(self.length)
            .with_precision(self.precision)
            .with_scale(self.scale)
            .with_id(id)
            .build()
    }

    /// Whether every value is null, by declaration.
    pub(super) fn only_nulls(&self) -> bool {
        self.logical == Some(LogicalType::Unknown)
    }

    /// What the values are, or `None` for an annotation that does not fit or is not known.
    pub(super) fn meaning(&self) -> Option<Meaning> {
        if self.only_nulls() {
            return Some(Meaning { ty: DataType::Null, tag: Tag::Plain });
        }
        let ty = match self.physical {
            PhysicalType::BOOLEAN => return self.plain(DataType::Boolean),
            PhysicalType::FLOAT => return self.plain(DataType::Float32),
            PhysicalType::DOUBLE => return self.plain(DataType::Float64),
            PhysicalType::INT96 => {
                let ty = DataType::Timestamp(ArrowUnit::Nanosecond, None);
                return self.plain(ty).map(|m| Meaning { tag: Tag::Int96, ..m });
            }
            PhysicalType::INT32 => return self.meaning_of_int32(),
            PhysicalType::INT64 => return self.meaning_of_int64(),
            PhysicalType::BYTE_ARRAY => DataType::Binary,
            PhysicalType::FIXED_LEN_BYTE_ARRAY => DataType::FixedSizeBinary(self.length),
        };
        let (ty, tag) = match (&self.logical, self.converted) {
            (None, ConvertedType::NONE) => (ty, Tag::Plain),
            (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL) => {
                return self.decimal();
            }
            (Some(LogicalType::String), _) | (None, ConvertedType::UTF8) => {
                (DataType::Utf8, Tag::Plain)
            }
            (Some(LogicalType::Json), _) | (None, ConvertedType::JSON) => {
                (DataType::Utf8, Tag::Json)
            }
            (Some(LogicalType::Bson), _) | (None, ConvertedType::BSON) => (ty, Tag::Bson),
            (Some(LogicalType::Enum), _) | (None, ConvertedType::ENUM) => (ty, Tag::Enum),
            (Some(LogicalType::Uuid), _) => (ty, Tag::Uuid),
            (Some(LogicalType::Float16), _) if self.length == 2 => (DataType::Float16, Tag::Plain),
            (None, ConvertedType::INTERVAL) => (ty, Tag::Interval),
            (Some(other @ (LogicalType::Geometry(_) | LogicalType::Geography(_))), _) => {
                (ty, Tag::Other(other.clone()))
            }
            _ => return None,
        };
        Some(Meaning { ty, tag })
    }

    fn plain(&self, ty: DataType) -> Option<Meaning> {
        let bare = self.logical.is_none() && self.converted == ConvertedType::NONE;
        bare.then_some(Meaning { ty, tag: Tag::Plain })
    }

    fn meaning_of_int32(&self) -> Option<Meaning> {
        use DataType as T;
        let (ty, tag) = match (&self.logical, self.converted) {
            (None, ConvertedType::NONE | ConvertedType::INT_32) => (T::Int32, Tag::Plain),
            (None, ConvertedType::INT_8) => (T::Int8, Tag::Plain),
            (None, ConvertedType::INT_16) => (T::Int16, Tag::Plain),
            (None, ConvertedType::UINT_8) => (T::UInt8, Tag::Plain),
            (None, ConvertedType::UINT_16) => (T::UInt16, Tag::Plain),
            (None, ConvertedType::UINT_32) => (T::UInt32, Tag::Plain),
            (Some(LogicalType::Integer(int)), _) => {
                let ty = match (int.bit_width, int.is_signed) {
                    (8, true) => T::Int8,
                    (16, true) => T::Int16,
                    (32, true) => T::Int32,
                    (8, false) => T::UInt8,
                    (16, false) => T::UInt16,
                    (32, false) => T::UInt32,
                    _ => return None,
                };
                (ty, Tag::Plain)
            }
            (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => (T::Date32, Tag::Plain),
            (Some(LogicalType::Time(time)), _) if time.unit == TimeUnit::MILLIS => {
                let utc = time.is_adjusted_to_u_t_c;
                (T::Time32(ArrowUnit::Millisecond), Tag::Time { utc })
            }
            (None, ConvertedType::TIME_MILLIS) => {
                (T::Time32(ArrowUnit::Millisecond), Tag::Time { utc: true })
            }
            (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL) => {
                return self.decimal();
            }
            _ => return None,
        };
        Some(Meaning { ty, tag })
    }

    fn meaning_of_int64(&self) -> Option<Meaning> {
        use DataType as T;
        let unit = |unit: &TimeUnit| match unit {
            TimeUnit::MILLIS => ArrowUnit::Millisecond,
            TimeUnit::MICROS => ArrowUnit::Microsecond,
            TimeUnit::NANOS => ArrowUnit::Nanosecond,
        };
        let timestamp = |unit, utc: bool| T::Timestamp(unit, utc.then(|| "UTC".into()));
        let (ty, tag) = match (&self.logical, self.converted) {
            (None, ConvertedType::NONE | ConvertedType::INT_64) => (T::Int64, Tag::Plain),
            (None, ConvertedType::UINT_64) => (T::UInt64, Tag::Plain),
            (Some(LogicalType::Integer(int)), _) if int.bit_width == 64 => {
                (if int.is_signed { T::Int64 } else { T::UInt64 }, Tag::Plain)
            }
            (Some(LogicalType::Timestamp(stamp)), _) => {
                (timestamp(unit(&stamp.unit), stamp.is_adjusted_to_u_t_c), Tag::Plain)
            }
            (None, ConvertedType::TIMESTAMP_MILLIS) => {
                (timestamp(ArrowUnit::Millisecond, true), Tag::Plain)
            }
            (None, ConvertedType::TIMESTAMP_MICROS) => {
                (timestamp(ArrowUnit::Microsecond, true), Tag::Plain)
            }
            (Some(LogicalType::Time(time)), _) if time.unit != TimeUnit::MILLIS => {
                (T::Time64(unit(&time.unit)), Tag::Time { utc: time.is_adjusted_to_u_t_c })
            }
            (None, ConvertedType::TIME_MICROS) => {
                (T::Time64(ArrowUnit::Microsecond), Tag::Time { utc: true })
            }
            (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL) => {
                return self.decimal();
            }
            _ => return None,
        };
        Some(Meaning { ty, tag })
    }

    fn decimal(&self) -> Option<Meaning> {
        let (scale, precision) = match &self.logical {
            Some(LogicalType::Decimal(decimal)) => (decimal.scale, decimal.precision),
            _ => (self.scale, self.precision),
        };
        let fits = (1..=76).contains(&precision)
            && (0..=precision).contains(&scale)
            && (self.physical != PhysicalType::FIXED_LEN_BYTE_ARRAY
                || (1..=32).contains(&self.length));
        let (p, s) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
        let ty = if p <= 38 { DataType::Decimal128(p, s) } else { DataType::Decimal256(p, s) };
        fits.then_some(Meaning { ty, tag: Tag::Plain })
    }

    /// How a key of these values is encoded, or `None` when they have no order.
    pub(super) fn key_type(&self) -> Option<KeyType> {
        let meaning = self.meaning()?;
        match meaning.tag {
            Tag::Interval => None,
            Tag::Int96 => Some(KeyType::Int96),
            _ => KeyType::from_arrow(&meaning.ty).ok(),
        }
    }

    /// What the values stand for in messages.
    pub(super) fn shown(&self) -> ShownAs {
        match self.meaning() {
            Some(Meaning { tag: Tag::Uuid, .. }) => ShownAs::Uuid,
            Some(meaning) => ShownAs::of_type(&meaning.ty),
            None => ShownAs::Plain,
        }
    }
}

/// The type as PyArrow prints it, with what Arrow has no type of its own for; that of the format
/// for an annotation that does not fit.
impl std::fmt::Display for LeafType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(Meaning { ty, tag }) = self.meaning() else {
            write!(f, "{}", self.physical)?;
            if self.physical == PhysicalType::FIXED_LEN_BYTE_ARRAY {
                write!(f, "[{}]", self.length)?;
            }
            return self.annotation().map_or(Ok(()), |annotation| write!(f, " ({annotation})"));
        };
        write!(f, "{}", type_text(&ty))?;
        match (tag, self.annotation()) {
            (Tag::Plain | Tag::Time { utc: false }, _) => Ok(()),
            (Tag::Time { utc: true }, _) => write!(f, " (UTC)"),
            (Tag::Int96, _) => write!(f, " (INT96)"),
            (_, annotation) => write!(f, " ({})", annotation.unwrap_or_default()),
        }
    }
}

impl LeafType {
    /// What is said of the values beyond their physical type, in the words of the format.
    pub(super) fn annotation(&self) -> Option<String> {
        Some(match &self.logical {
            Some(LogicalType::Decimal(d)) => format!("DECIMAL({},{})", d.precision, d.scale),
            Some(LogicalType::Integer(i)) => {
                format!("{}INT{}", if i.is_signed { "" } else { "U" }, i.bit_width)
            }
            Some(LogicalType::Timestamp(t)) => {
                let zone = if t.is_adjusted_to_u_t_c { "UTC" } else { "local" };
                format!("TIMESTAMP({:?},{zone})", t.unit)
            }
            Some(LogicalType::Time(t)) => {
                let zone = if t.is_adjusted_to_u_t_c { "UTC" } else { "local" };
                format!("TIME({:?},{zone})", t.unit)
            }
            Some(LogicalType::Unknown) => "NULL".to_owned(),
            Some(logical) => format!("{logical:?}").to_uppercase(),
            None if self.converted == ConvertedType::DECIMAL => {
                format!("DECIMAL({},{})", self.precision, self.scale)
            }
            None if self.converted == ConvertedType::NONE => return None,
            None => self.converted.to_string(),
        })
    }
}

/// What a leaf stores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredType {
    pub(super) leaf: LeafType,
    /// What a hint takes bare integers for.
    pub(super) reread: Option<DataType>,
}

impl StoredType {
    /// What a leaf stores without a hint; `None` for a group.
    pub(super) fn of(node: &Type) -> Option<Self> {
        Some(Self { leaf: LeafType::of(node)?, reread: None })
    }

    /// The Arrow type of the values, as a hint takes them.
    pub(super) fn ty(&self) -> Option<DataType> {
        self.reread.clone().or_else(|| Some(self.leaf.meaning()?.ty))
    }
}

impl std::fmt::Display for StoredType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.leaf)?;
        match &self.reread {
            Some(ty) => write!(f, ", {} in ARROW:schema", type_text(ty)),
            None => Ok(()),
        }
    }
}
