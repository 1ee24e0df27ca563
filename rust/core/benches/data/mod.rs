//! Rows of three key shapes. Row numbers ascend with the keys, so that a source is any ascending
//! list of row numbers.

use plait_core::Result;
use plait_core::key::{Column, KeyColumn, KeyShape, KeyType, Keys, Nulls, Values, encode};

/// A key of `columns`: name, type, whether it descends.
fn shape(columns: &[(&str, KeyType, bool)]) -> Result<KeyShape> {
    let column = |&(name, ty, descending): &(&str, KeyType, bool)| KeyColumn {
        name: name.to_owned(),
        ty,
        descending,
        nulls: Nulls::Last,
    };
    KeyShape::try_new(columns.iter().map(column).collect())
}

/// Rows of time series, keyed as W1 of `benches/`: metric, service, host, time descending.
pub(crate) struct Metrics {
    pub(crate) shape: KeyShape,
    texts: [Vec<String>; 3],
    times: Vec<i64>,
}

impl Metrics {
    /// Consecutive rows of one time series.
    const SERIES_ROWS: u64 = 40;

    pub(crate) fn try_new(rows: impl Iterator<Item = u64> + Clone) -> Result<Self> {
        let text = KeyType::Bytes { text: true };
        let texts = |row_to_text: fn(u64) -> String| rows.clone().map(row_to_text).collect();
        let texts = [
            texts(|r| format!("http.requests.{:04}", r / Self::SERIES_ROWS / 2000)),
            texts(|r| format!("ingest-{:02}", r / Self::SERIES_ROWS / 40 % 50)),
            texts(|r| {
                let host = r / Self::SERIES_ROWS % 40;
                format!("node-{host:04}.rack-{:02}.example.internal", host % 7)
            }),
        ];
        Ok(Self {
            shape: shape(&[
                ("metric_name", text, false),
                ("service", text, false),
                ("host", text, false),
                ("timestamp_secs", KeyType::Int64, true),
            ])?,
            texts,
            times: rows.map(|r| 1_720_000_000 - r.cast_signed()).collect(),
        })
    }

    /// The text columns as `encode` takes them.
    pub(crate) fn texts(&self) -> [Vec<&[u8]>; 3] {
        self.texts.each_ref().map(|column| column.iter().map(String::as_bytes).collect())
    }

    /// The columns as a merge has them: ranks for the texts, the time without a marker.
    pub(crate) fn ranked(&self) -> Result<Ranked> {
        // Digits of the texts ascend as the texts do.
        let digits = |text: &String| {
            let digits = text.chars().filter_map(|c| c.to_digit(10)).take(4);
            digits.fold(0, |number, digit| number * 10 + u64::from(digit))
        };
        let [metric, service, host] =
            self.texts.each_ref().map(|texts| texts.iter().map(digits).collect());
        let time = self.times.iter().map(|t| t.cast_unsigned() ^ 1 << 63).collect();
        let rank = |bytes| KeyType::Rank { bytes };
        Ok(Ranked {
            shape: shape(&[
                ("metric_name", rank(1), false),
                ("service", rank(1), false),
                ("host", rank(2), false),
                ("timestamp_secs", rank(8), true),
            ])?,
            columns: [metric, service, host, time],
        })
    }

    pub(crate) fn encode(&self, texts: &[Vec<&[u8]>; 3]) -> Result<Keys> {
        let [metric, service, host] = texts.each_ref().map(|column| Values::Bytes(column));
        let columns = [metric, service, host, Values::Int64(&self.times)];
        encode(&self.shape, self.times.len(), &columns.map(present))
    }
}

/// The rows of [`Metrics`] as ranks.
pub(crate) struct Ranked {
    pub(crate) shape: KeyShape,
    columns: [Vec<u64>; 4],
}

impl Ranked {
    pub(crate) fn encode(&self) -> Result<Keys> {
        let columns = self.columns.each_ref().map(|column| Values::Numbers(column));
        encode(&self.shape, self.columns[0].len(), &columns.map(present))
    }
}

/// Rows of two numbers, uint64 and uint32: keys that fit a `u128`.
pub(crate) struct Numbers {
    pub(crate) shape: KeyShape,
    high: Vec<i64>,
    low: Vec<i32>,
}

impl Numbers {
    pub(crate) fn try_new(rows: impl Iterator<Item = u64> + Clone) -> Result<Self> {
        Ok(Self {
            shape: shape(&[("order", KeyType::UInt64, false), ("line", KeyType::UInt32, false)])?,
            high: rows.clone().map(|r| (r / 4).cast_signed()).collect(),
            low: rows.map(|r| if r % 4 == 0 { 0 } else { 1 << (r % 4) }).collect(),
        })
    }

    pub(crate) fn encode(&self) -> Result<Keys> {
        let columns = [Values::Int64(&self.high), Values::Int32(&self.low)];
        encode(&self.shape, self.high.len(), &columns.map(present))
    }
}

/// A column without nulls.
fn present(values: Values<'_>) -> Column<'_> {
    Column { present: None, values }
}
