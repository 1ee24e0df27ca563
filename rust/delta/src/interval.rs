//! Spans of time as the properties of a table write them.
//!
//! ```text
//! interval 1 week    7 days    interval 12 hours
//! ```
//!
//! # Not here
//! What they are of (`checkpoint`, `clean`).

/// Milliseconds of a span; `None` for one that cannot be read.
pub(crate) fn interval_ms(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_prefix("interval ").unwrap_or(&text);
    let mut words = text.split_ascii_whitespace();
    let mut sum = 0_i64;
    let mut is_any = false;
    while let Some(count) = words.next() {
        let unit = words.next()?;
        let unit = unit.strip_suffix('s').unwrap_or(unit);
        let one = match unit {
            "week" => 7 * 86_400_000,
            "day" => 86_400_000,
            "hour" => 3_600_000,
            "minute" => 60_000,
            "second" => 1_000,
            "millisecond" => 1,
            _ => return None,
        };
        sum = sum.checked_add(count.parse::<i64>().ok()?.checked_mul(one)?)?;
        is_any = true;
    }
    is_any.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_spark_and_delta_rs_write_them() {
        assert_eq!(interval_ms("interval 1 week"), Some(604_800_000));
        assert_eq!(interval_ms("interval 30 days"), Some(2_592_000_000));
        assert_eq!(interval_ms("12 HOURS"), Some(43_200_000));
        assert_eq!(interval_ms("interval 1 day 2 hours"), Some(93_600_000));
        for text in ["", "interval", "interval 1", "1 month", "x days"] {
            assert_eq!(interval_ms(text), None, "{text}");
        }
    }
}
