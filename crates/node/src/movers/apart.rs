//! Questions to disks that may hang, side by side: one that does not answer keeps no answer of another one back.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// Disks that were asked, by name, and have not answered yet. Each question has a thread of its own, and a disk one question at a time.
pub(super) struct Apart<T> {
    asked: BTreeMap<String, Receiver<T>>,
}

impl<T> Default for Apart<T> {
    fn default() -> Self {
        Self { asked: BTreeMap::new() }
    }
}

impl<T: Send + 'static> Apart<T> {
    /// Asks all of them, and waits for what they answer no longer than `patience`, all in all; None: this one has not answered. It is not asked
    /// again then, nor waited for: what it answers in the end comes when it would be asked next.
    pub(super) fn ask<Q: FnOnce() -> T + Send + 'static>(
        &mut self,
        questions: impl IntoIterator<Item = (String, Q)>,
        patience: Duration,
    ) -> Vec<(String, Option<T>)> {
        let end = Instant::now() + patience;
        let begin = |(name, question)| {
            let late = self.asked.remove(&name);
            let waits = late.is_none();
            let answer = late.or_else(|| spawn(question));
            (name, answer, waits)
        };
        let begun: Vec<_> = questions.into_iter().map(begin).collect();
        let mut heard = |(name, answer, waits): (String, Option<Receiver<T>>, bool)| {
            let left = if waits { end.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            let said = answer.as_ref().and_then(|answer| answer.recv_timeout(left).ok());
            // A thread that panicked says nothing any more.
            let gone = |answer: &Receiver<T>| answer.try_recv().err() == Some(TryRecvError::Disconnected);
            if let Some(answer) = answer.filter(|answer| said.is_none() && !gone(answer)) {
                self.asked.insert(name.clone(), answer);
            }
            (name, said)
        };
        begun.into_iter().map(&mut heard).collect()
    }
}

fn spawn<T: Send + 'static>(question: impl FnOnce() -> T + Send + 'static) -> Option<Receiver<T>> {
    let (tell, answer) = sync_channel(1);
    // Whoever asked may have gone.
    let asked = std::thread::Builder::new().name("disk".into()).spawn(move || drop(tell.send(question())));
    if let Err(e) = &asked {
        tracing::warn!("a disk is not asked, because there is no thread for it: {e}");
    }
    asked.ok().map(|_| answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_answer_keeps_none_back_and_is_asked_again_when_it_has() {
        let (go_on, goes_on) = sync_channel(2);
        let goes_on = std::sync::Arc::new(parking_lot::Mutex::new(goes_on));
        let mut apart = Apart::default();
        let mut ask = |number: u32, patience: Duration| {
            let goes_on = goes_on.clone();
            let hangs = move || goes_on.lock().recv().map_or(0, |()| number);
            let questions: Vec<(String, Box<dyn FnOnce() -> u32 + Send>)> =
                vec![("hangs".into(), Box::new(hangs)), ("other".into(), Box::new(move || number))];
            apart.ask(questions, patience).into_iter().map(|(_, said)| said).collect::<Vec<_>>()
        };
        let (short, long) = (Duration::from_millis(300), Duration::from_secs(60));
        assert_eq!(ask(1, short), [None, Some(1)]);
        // From then on it is not waited for, and nobody else asks it.
        let begin = Instant::now();
        assert_eq!(ask(2, long), [None, Some(2)]);
        assert!(begin.elapsed() < long / 2);
        go_on.send(()).unwrap();
        let mut said = ask(3, long);
        while said[0].is_none() {
            assert!(begin.elapsed() < long);
            std::thread::sleep(Duration::from_millis(5));
            said = ask(3, long);
        }
        assert_eq!(said[0], Some(1), "what it was asked first");
        go_on.send(()).unwrap();
        assert_eq!(ask(4, long), [Some(4), Some(4)]);
    }
}
