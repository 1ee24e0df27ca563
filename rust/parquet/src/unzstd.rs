//! Unpacking zstd with the context of the thread: making one takes longer than a small page.

use std::cell::RefCell;
use std::io::Cursor;

/// Unpacks `compressed` behind what is in `out`, as far as room is reserved there.
///
/// # Errors
/// What zstd says, also if there is more than that.
pub(crate) fn unzstd(compressed: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    thread_local! {
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            None => slot.insert(zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?),
        };
        let prefix = out.len() as u64;
        let mut cursor = Cursor::new(out);
        cursor.set_position(prefix);
        context.decompress_to_buffer(compressed, &mut cursor).map(drop).map_err(|e| e.to_string())
    })
}
