//! The fence of a lease: (map epoch, boot generation, counter).

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names one grant of one event, forever: no later life of the store gives the same token again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Token {
    /// Revision of the cluster map under which the lease was granted; 0 on one node.
    pub epoch: u32,
    /// Boot generation of the home, raised durably at each opening.
    pub boot: u32,
    /// Grants of this boot generation, counted.
    pub counter: u64,
}

impl Token {
    /// The token of decisions without a lease (removals, releases).
    pub const NONE: Token = Token { epoch: 0, boot: 0, counter: 0 };
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.epoch, self.boot, self.counter)
    }
}

impl From<Token> for String {
    fn from(token: Token) -> String {
        token.to_string()
    }
}

impl TryFrom<String> for Token {
    type Error = crate::Error;

    fn try_from(text: String) -> crate::Result<Token> {
        text.parse()
    }
}

impl std::str::FromStr for Token {
    type Err = crate::Error;

    fn from_str(text: &str) -> crate::Result<Token> {
        let wrong = || crate::Error::invalid(format!("token `{text}`: expected epoch.boot.counter, such as 0.3.41"));
        let mut parts = text.split('.');
        let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(wrong);
        let (epoch, boot, counter) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(wrong());
        }
        let narrow = |value: u64| u32::try_from(value).map_err(|_| wrong());
        Ok(Token { epoch: narrow(epoch)?, boot: narrow(boot)?, counter })
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn text_form_round_trips_and_refuses_nonsense() {
        let token = Token { epoch: 3, boot: 12, counter: u64::MAX };
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        for text in ["", "1.2", "1.2.3.4", "a.b.c", "99999999999.1.1"] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}
