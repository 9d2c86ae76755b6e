//! A connection of Redis's protocol.

use crate::shared::Shared;
use crate::transport::Transport;
use std::sync::Arc;

/// Serves one connection to its end; why it ended.
pub(crate) async fn serve<T: Transport>(_stream: T, _shared: &Arc<Shared>) -> &'static str {
    "closed"
}
