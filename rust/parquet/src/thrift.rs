//! The few parts of the Thrift compact protocol that footers and page headers need.
//!
//! ```text
//! field:  delta·4 type·4 │ 0000 type·4, id        binary:  length, bytes
//! ints:   zigzag varint                           list:    size·4 type·4 │ 1111 type·4, size
//! ```
//!
//! # Invariants
//! Nothing is allocated, nothing is read twice, nesting is limited. Every element takes at least
//! one byte, so a list that was skipped is no longer than its bytes.
//!
//! # Not here
//! What the fields mean (`page::header`, `source`).

/// Longest chain of structs inside structs.
const DEPTH_MAX: usize = 32;

pub(crate) const TYPE_BINARY: u8 = 8;
pub(crate) const TYPE_LIST: u8 = 9;
pub(crate) const TYPE_STRUCT: u8 = 12;
const TYPE_TRUE: u8 = 1;
const TYPE_FALSE: u8 = 2;

/// Why reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes end inside a value.
    MoreBytes,
    /// No bytes that could follow make this right.
    Malformed(&'static str),
}

impl Stop {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::MoreBytes => "too few bytes",
            Self::Malformed(reason) => reason,
        }
    }
}

/// Reads values from the front of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The next field's id and type; `None` at the end of the struct. `last` starts at 0.
    pub(crate) fn field(&mut self, last: &mut i16) -> Result<Option<(i16, u8)>, Stop> {
        let byte = self.byte()?;
        let kind = byte & 0x0f;
        if kind == 0 {
            return Ok(None);
        }
        let id = match byte >> 4 {
            0 => i16::try_from(self.zigzag()?).ok(),
            delta => last.checked_add(i16::from(delta)),
        };
        *last = id.ok_or(Stop::Malformed("field id out of range"))?;
        Ok(Some((*last, kind)))
    }

    /// The type and the number of the elements that follow.
    pub(crate) fn list(&mut self) -> Result<(u8, usize), Stop> {
        let byte = self.byte()?;
        let size = match byte >> 4 {
            15 => self.varint()?,
            size => u64::from(size),
        };
        let size = i32::try_from(size).ok().and_then(|size| usize::try_from(size).ok());
        Ok((byte & 0x0f, size.ok_or(Stop::Malformed("list too long"))?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Stop> {
        i32::try_from(self.zigzag()?).map_err(|_| Stop::Malformed("number out of range"))
    }

    /// Skips a value of type `kind` that is a field of a struct.
    pub(crate) fn skip(&mut self, kind: u8) -> Result<(), Stop> {
        if matches!(kind, TYPE_TRUE | TYPE_FALSE) {
            return Ok(()); // the type is the value
        }
        self.skip_element(kind, 0)
    }

    fn skip_element(&mut self, kind: u8, depth: usize) -> Result<(), Stop> {
        if depth > DEPTH_MAX {
            return Err(Stop::Malformed("nested too deeply"));
        }
        match kind {
            TYPE_TRUE..=3 => self.advance(1),
            4..=6 => self.varint().map(drop),
            7 => self.advance(8),
            TYPE_BINARY => {
                let len = i32::try_from(self.varint()?).ok();
                let len = len.and_then(|len| usize::try_from(len).ok());
                self.advance(len.ok_or(Stop::Malformed("string too long"))?)
            }
            TYPE_LIST | 10 => {
                let (kind, size) = self.list()?;
                (0..size).try_for_each(|_| self.skip_element(kind, depth + 1))
            }
            11 => {
                let size = self.varint()?;
                if size == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..size).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth + 1)?;
                    self.skip_element(kinds & 0x0f, depth + 1)
                })
            }
            TYPE_STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    if !matches!(kind, TYPE_TRUE | TYPE_FALSE) {
                        self.skip_element(kind, depth + 1)?;
                    }
                }
                Ok(())
            }
            13 => self.advance(16),
            _ => Err(Stop::Malformed("unknown type")),
        }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = self.bytes.get(self.at).copied().ok_or(Stop::MoreBytes)?;
        self.at += 1;
        Ok(byte)
    }

    fn advance(&mut self, len: usize) -> Result<(), Stop> {
        let left = self.bytes.len() - self.at;
        if len > left {
            return Err(Stop::MoreBytes);
        }
        self.at += len;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Stop> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Malformed("number too long"))
    }

    fn zigzag(&mut self) -> Result<i64, Stop> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// Checks that `bytes` start with one whole struct.
pub(crate) fn check_struct(bytes: &[u8]) -> Result<(), Stop> {
    Reader::new(bytes).skip(TYPE_STRUCT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_drawn() {
        let read = |bytes: &[u8]| Reader::new(bytes).i32();
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[1]), Ok(-1));
        assert_eq!(read(&[0xac, 0x02]), Ok(150));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MIN));
        assert_eq!(read(&[0x80]), Err(Stop::MoreBytes));
        assert!(matches!(read(&[0xff; 11]), Err(Stop::Malformed(_))));
    }

    #[test]
    fn endless_nesting_is_refused() {
        assert!(matches!(check_struct(&[0x1c; 100]), Err(Stop::Malformed("nested too deeply"))));
        assert!(matches!(check_struct(&[0x19, 0x19, 0x19, 0x19]), Err(Stop::MoreBytes)));
    }

    #[test]
    fn maps_lists_and_flags_are_skipped_whole() {
        // 1: true, 2: list<i32> [1, 2], 3: map<i32, binary> {1: "a"}, 4: struct {1: double}
        let mut bytes = vec![0x11, 0x19, 0x25, 2, 4, 0x1b, 1, 0x58, 2, 1, b'a', 0x1c, 0x17];
        bytes.extend([0; 8]);
        bytes.extend([0, 0]);
        let mut reader = Reader::new(&bytes);
        reader.skip(TYPE_STRUCT).unwrap();
        assert_eq!(reader.position(), bytes.len());
        for cut in 0..bytes.len() {
            assert_eq!(check_struct(&bytes[..cut]), Err(Stop::MoreBytes), "{cut}");
        }
    }
}
