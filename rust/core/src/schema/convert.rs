//! How the values of one field become those of another.
//!
//! ```text
//! struct<y, x: int32>  ─▶  struct<x: int64, y, z>     Struct [ Cast(#1), Same(#0), Null ]
//! list<int32>          ─▶  list<int64>                List  ( Cast )
//! ```
//!
//! # Invariants
//! A plan is a pure function of two types.
//!
//! # Not here
//! Which type it becomes (`unify`); the values (`convert_values`).

use std::sync::Arc;

use arrow_cast::can_cast_types;
use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::policy::{Allow, SchemaPolicy};
use super::same::members;
use super::supertype::supertype;
use super::unify::{list_item, only_nulls, with_item};
use plait_base::type_text;

/// What becomes of the values of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Convert {
    /// They stay.
    Same,
    /// All are null.
    Null(DataType),
    /// They are cast; `exact`: the type holds them all.
    Cast { to: DataType, exact: bool },
    /// Field by field.
    Struct { fields: Fields, parts: Vec<Member> },
    /// Item by item, then to another layout.
    List { to: DataType, item: Box<Convert> },
    /// Keys and values.
    Map { to: DataType, key: Box<Convert>, value: Box<Convert> },
}

/// One field of a struct: from which it is made, if any, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) from: Option<usize>,
    pub(super) convert: Convert,
    /// Nulls are refused, because they may come and must not.
    pub(super) never_null: bool,
}

impl Convert {
    /// Whether there is nothing for the member at `path`.
    pub(super) fn lacks(&self, path: &[usize]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        match self {
            Self::Struct { parts, .. } => parts
                .get(*first)
                .is_some_and(|part| part.from.is_none() || part.convert.lacks(rest)),
            _ => false,
        }
    }
}

/// What a plan may do.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) policy: &'a SchemaPolicy,
    /// Fields that the target has no place for are refused.
    pub(super) refuse_extra: bool,
}

/// Why a field does not become another: the path below it, what the source has.
pub(super) type Refusal = (String, String);

impl Rules<'_> {
    /// How `from` becomes `to`.
    pub(super) fn plan(&self, from: &DataType, to: &DataType) -> Result<Convert, Refusal> {
        use DataType as T;
        if from == to {
            return Ok(Convert::Same);
        }
        if only_nulls(from) {
            return Ok(Convert::Null(to.clone()));
        }
        let lossy = self.policy.lossy;
        let refused = || (String::new(), from.to_string());
        match (from, to) {
            (T::Struct(old), T::Struct(new)) => return self.structs(old, new),
            (T::Map(old, _), T::Map(new, _)) => {
                let pair = |entries: &FieldRef| match entries.data_type() {
                    T::Struct(f) => Some((f.first()?.clone(), f.get(1)?.clone())),
                    _ => None,
                };
                let (Some((k, v)), Some((key, value))) = (pair(old), pair(new)) else {
                    return Err(refused());
                };
                let key = Box::new(self.plan(k.data_type(), key.data_type())?);
                self.nullable(&v, &value)?;
                let value = Box::new(self.plan(v.data_type(), value.data_type())?);
                return Ok(Convert::Map { to: to.clone(), key, value });
            }
            _ => {}
        }
        if let (Some(old), Some(new)) = (list_item(from), list_item(to)) {
            let item = Box::new(self.plan(old.data_type(), new.data_type())?);
            self.nullable(old, new)?;
            if !can_cast_types(&with_item(from, Arc::clone(new)), to) {
                return Err(refused());
            }
            return Ok(Convert::List { to: to.clone(), item });
        }
        if from.is_nested() || to.is_nested() {
            return if lossy == Allow::Null {
                Ok(Convert::Null(to.clone()))
            } else {
                Err(refused())
            };
        }
        let exact = supertype(from, to).as_ref() == Some(to);
        let zones = matches!((from, to), (T::Timestamp(_, a), T::Timestamp(_, b)) if a.is_some() != b.is_some());
        let allowed = exact
            || if zones {
                self.policy.zone == Allow::Cast
            } else {
                matches!(lossy, Allow::Cast | Allow::Null)
            };
        let possible = || match (from, to) {
            (T::Timestamp(..), T::Timestamp(..)) => true,
            _ => can_cast_types(from, to),
        };
        if allowed && possible() {
            return Ok(Convert::Cast { to: to.clone(), exact });
        }
        if lossy == Allow::Null { Ok(Convert::Null(to.clone())) } else { Err(refused()) }
    }

    fn structs(&self, old: &Fields, new: &Fields) -> Result<Convert, Refusal> {
        let mut used = vec![false; old.len()];
        let mut parts = Vec::with_capacity(new.len());
        for (field, place) in new.iter().zip(members(old, new, self.policy)) {
            let below = |(path, says): Refusal| match path.as_str() {
                "" => (field.name().clone(), says),
                path => (format!("{}.{path}", field.name()), says),
            };
            let Some(from) = place else {
                if !field.is_nullable() {
                    return Err((field.name().clone(), "absent".to_owned()));
                }
                let convert = Convert::Null(field.data_type().clone());
                parts.push(Member { from: None, convert, never_null: false });
                continue;
            };
            if let (Some(used), Some(of)) = (used.get_mut(from), old.get(from)) {
                *used = true;
                let never_null = self.nullable(of, field).map_err(below)?;
                let convert = self.plan(of.data_type(), field.data_type()).map_err(below)?;
                parts.push(Member { from: Some(from), convert, never_null });
            }
        }
        if self.refuse_extra
            && let Some((field, _)) = old.iter().zip(&used).find(|(_, used)| !**used)
        {
            return Err((
                field.name().clone(),
                format!("a field of type {}", type_text(field.data_type())),
            ));
        }
        let same = old == new && parts.iter().enumerate().all(|(i, part)| part.is_take(i));
        Ok(if same { Convert::Same } else { Convert::Struct { fields: new.clone(), parts } })
    }

    /// Whether nulls may come where none may be.
    pub(super) fn nullable(&self, from: &Field, to: &Field) -> Result<bool, Refusal> {
        let may_come = from.is_nullable() || only_nulls(from.data_type());
        if to.is_nullable() || !may_come {
            return Ok(false);
        }
        if self.policy.nullability == Allow::Cast {
            Ok(true)
        } else {
            Err((String::new(), "nullable".to_owned()))
        }
    }
}

impl Member {
    fn is_take(&self, at: usize) -> bool {
        self.from == Some(at) && self.convert == Convert::Same && !self.never_null
    }
}

impl Convert {
    /// Whether nothing but nulls of the null type gets another type, and all stays in its place; `from`
    /// is what it is planned for.
    pub(super) fn only_fills(&self, from: &DataType) -> bool {
        use DataType as T;
        match (self, from) {
            (Self::Same | Self::Null(_), _) => true,
            (Self::Struct { fields, parts }, T::Struct(old)) => {
                old.len() == parts.len()
                    && parts.iter().zip(fields).zip(old).enumerate().all(
                        |(i, ((part, new), old))| {
                            part.from == Some(i)
                                && new.name() == old.name()
                                && part.convert.only_fills(old.data_type())
                        },
                    )
            }
            (Self::List { to, item }, from) => match (list_item(from), list_item(to)) {
                (Some(old), Some(new)) => {
                    with_item(from, Arc::clone(new)) == *to && item.only_fills(old.data_type())
                }
                _ => false,
            },
            (Self::Map { to: T::Map(_, sorted), key, value }, T::Map(entries, own)) => {
                let T::Struct(pair) = entries.data_type() else { return false };
                let [k, v] = &pair[..] else { return false };
                sorted == own && key.only_fills(k.data_type()) && value.only_fills(v.data_type())
            }
            _ => false,
        }
    }

    /// One or two words for people.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Same => "take",
            Self::Null(_) => "null",
            Self::Cast { exact: true, .. } => "cast",
            Self::Cast { .. } => "checked cast",
            Self::Struct { .. } => "adapt struct",
            Self::List { .. } => "adapt list",
            Self::Map { .. } => "adapt map",
        }
    }
}
